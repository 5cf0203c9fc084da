"""INSERT ... ON CONFLICT DO NOTHING on both databases: what makes writing a fact twice harmless."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import CursorResult
from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import Session, SQLModel


def insert_new(session: Session, rows: Sequence[SQLModel]) -> int:
    """Insert rows of one table, leaving out those that exist under any unique key; returns how many came.

    The count is exact for one row. The rows are not attached to the session.
    """
    if not rows:
        return 0
    table: Any = type(rows[0]).__table__  # type: ignore[attr-defined]
    dialect = session.get_bind().dialect.name
    insert = postgresql.insert if dialect == "postgresql" else sqlite.insert
    columns = [column.key for column in table.columns]
    values = [{key: getattr(row, key) for key in columns} for row in rows]
    result = session.connection().execute(insert(table).on_conflict_do_nothing(), values)
    assert isinstance(result, CursorResult)
    return result.rowcount
