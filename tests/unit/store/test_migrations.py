from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect
from sqlmodel import SQLModel

from headrace.store import tables  # noqa: F401  (registers the tables)
from headrace.store.migrate import MIGRATIONS, upgrade
from headrace.store.session import make_engine


def test_the_migrations_make_exactly_the_tables_of_the_models(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'deep' / 'headrace.db'}"
    upgrade(url)
    engine = make_engine(url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, SQLModel.metadata) == []
        assert "jobs" in inspect(connection).get_table_names()


def test_upgrading_again_changes_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'headrace.db'}"
    upgrade(url)
    before = (tmp_path / "headrace.db").read_bytes()
    upgrade(url)
    assert (tmp_path / "headrace.db").read_bytes() == before


def test_processes_that_start_together_migrate_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'headrace.db'}"
    code = f"from headrace.store.migrate import upgrade; upgrade({url!r})"
    starters = [subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE) for _ in range(4)]
    for starter in starters:
        _, errors = starter.communicate(timeout=120)
        assert starter.returncode == 0, errors.decode()


def test_the_migrations_lie_inside_the_package_that_ships() -> None:
    import headrace

    assert MIGRATIONS.is_relative_to(Path(headrace.__file__).parent)
    assert list((MIGRATIONS / "versions").glob("0001_*.py"))
