"""Time as the database and the wire hold it: UTC, ISO 8601."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> datetime:
    """The current time, aware, in UTC."""
    return datetime.now(UTC)
