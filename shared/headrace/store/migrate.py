"""Bring a database to the newest schema, however many processes start at once.

    headrace.store.migrate.upgrade("sqlite:////var/lib/headrace/headrace.db")

Migrations lie beside this module and ship with the package.
"""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, make_url, text

from headrace.store.session import make_engine

MIGRATIONS = Path(__file__).parent / "migrations"
_LOCK = 0x48656164
"""Key of the advisory lock on PostgreSQL; SQLite's BEGIN IMMEDIATE is its own."""


def upgrade(url: str) -> None:
    """Run every migration that the database lacks, in one transaction that other starters wait for."""
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite" and parsed.database not in (None, "", ":memory:"):
        Path(str(parsed.database)).parent.mkdir(parents=True, exist_ok=True)
    engine = make_engine(url)
    try:
        with engine.begin() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
            command.upgrade(config(connection), "head")
    finally:
        engine.dispose()


def config(connection: Connection) -> Config:
    """Alembic's config for an open connection; `migrations/env.py` takes the connection from it."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
