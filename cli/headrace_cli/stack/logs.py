"""One log file per process: kept over restarts of the process, rotated at each start of the stack."""

from __future__ import annotations

from pathlib import Path

KEPT = 5
"""Logs of earlier starts that stay, as `<process>.log.1` (the last one) and so on."""


def log_file(home: Path, process: str) -> Path:
    return home / "logs" / f"{process}.log"


def rotate(path: Path) -> None:
    """Move `path` to `path.1`, `path.1` to `path.2` and so on; the oldest is dropped."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        return
    for number in range(KEPT - 1, 0, -1):
        older = path.with_name(f"{path.name}.{number}")
        if older.exists():
            older.replace(path.with_name(f"{path.name}.{number + 1}"))
    path.replace(path.with_name(f"{path.name}.1"))


def last_line(path: Path) -> str:
    """The last line of a log that says something, shortened; empty when there is none."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - 4096))
            lines = file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    said = [line.strip() for line in lines if line.strip()]
    return said[-1][:200] if said else ""
