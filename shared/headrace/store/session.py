"""Engines and sessions. SQLite: WAL and BEGIN IMMEDIATE for writers, plain BEGIN for readers.

A deferred BEGIN that reads and then writes fails under load whatever the busy time-out; taking the
write lock at BEGIN queues writers instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, create_engine, event
from sqlmodel import Session


def make_engine(url: str, *, read_only: bool = False) -> Engine:
    """An engine with the pragmas that concurrent processes need."""
    if not url.startswith("sqlite"):
        return create_engine(url, pool_pre_ping=True)
    engine = create_engine(url, connect_args={"timeout": 30, "check_same_thread": False})
    begin = "BEGIN" if read_only else "BEGIN IMMEDIATE"

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # we issue BEGIN ourselves
        cursor = connection.cursor()
        for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "busy_timeout=30000", "foreign_keys=ON"):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Any) -> None:
        connection.exec_driver_sql(begin)

    return engine


class Store:
    """Sessions of one database; writers and readers use engines of their own."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.writer = make_engine(url)
        self.reader = make_engine(url, read_only=True) if url.startswith("sqlite") else self.writer

    @contextmanager
    def write(self) -> Iterator[Session]:
        """One short write transaction: committed at the end, rolled back on an error."""
        with Session(self.writer, expire_on_commit=False) as session, session.begin():
            yield session

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A consistent read; never writes."""
        with Session(self.reader, expire_on_commit=False) as session:
            yield session

    def close(self) -> None:
        self.writer.dispose()
        self.reader.dispose()
