"""Run by alembic: migrate over the connection, and inside the transaction, of `headrace.store.migrate`."""

from __future__ import annotations

from alembic import context
from sqlmodel import SQLModel

from headrace.store import tables  # noqa: F401  (registers the tables)

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=SQLModel.metadata,
    transactional_ddl=True,
    compare_type=True,
)
context.run_migrations()
