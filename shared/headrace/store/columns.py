"""Column types of the tables: aware UTC times and JSON, alike on SQLite and PostgreSQL."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, DateTime, TypeDecorator
from sqlmodel import Field

from headrace.clock import now


class UtcDateTime(TypeDecorator[datetime]):
    """Aware UTC datetimes on both databases (SQLite drops the zone)."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Any) -> datetime | None:
        return value.astimezone(UTC) if value is not None else None

    def process_result_value(self, value: datetime | None, dialect: Any) -> datetime | None:
        return value.replace(tzinfo=UTC) if value is not None and value.tzinfo is None else value


def utc_time() -> Any:
    return Field(default_factory=now, sa_type=UtcDateTime)


def utc_time_or_none() -> Any:
    return Field(default=None, sa_type=UtcDateTime)


def json_column(default_factory: Any = dict) -> Any:
    return Field(default_factory=default_factory, sa_type=JSON)
