"""The stack's state file: who runs, where, as what; and the lock that lets one stack hold a home folder."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headrace.artifacts.files import write_atomically
from headrace.errors import Conflict


@dataclass(frozen=True)
class ProcessState:
    """One row of `headrace status`."""

    name: str
    state: str
    pid: int | None
    url: str | None
    restarts: int
    since: float
    """Unix time at which it entered this state."""
    reason: str
    log: str
    health: str | None = None
    """Address that answers below 400 while the process is ready; None for processes without a port."""


@dataclass(frozen=True)
class StackState:
    """What `headrace up` knows about its processes, as of its last change."""

    home: str
    pid: int
    since: float
    addresses: dict[str, str]
    processes: tuple[ProcessState, ...]


def state_file(home: Path) -> Path:
    return home / "state.json"


def write_state(home: Path, state: StackState) -> None:
    write_atomically(state_file(home), (json.dumps(asdict(state), indent=1) + "\n").encode(), mode=0o600)


def read_state(home: Path) -> StackState | None:
    """The state as last written, None when no stack has run here."""
    try:
        raw: dict[str, Any] = json.loads(state_file(home).read_text())
    except FileNotFoundError:
        return None
    processes = tuple(ProcessState(**row) for row in raw.pop("processes"))
    return StackState(**raw, processes=processes)


def is_held(home: Path) -> bool:
    """Whether a `headrace up` runs on this home folder now."""
    try:
        descriptor = os.open(_lock_file(home), os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


@contextmanager
def held(home: Path) -> Iterator[None]:
    """Hold the home folder; raises Conflict that names the holder. The kernel frees it when we die."""
    descriptor = os.open(_lock_file(home), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 64).decode().strip() or "unknown"
            raise Conflict(
                f"another `headrace up` (pid {holder}) runs on {home}; stop it, or give another folder "
                "with --home and other ports with --base-port"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _lock_file(home: Path) -> Path:
    return home / "up.lock"
