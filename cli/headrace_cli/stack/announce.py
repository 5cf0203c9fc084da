"""How `headrace up` speaks: lines for people (coloured on a terminal), or one JSON object per line."""

from __future__ import annotations

import json
import sys
import time
from typing import Protocol

import click


class Announcer(Protocol):
    """What the supervisor tells as it happens."""

    def started(self, name: str, pid: int) -> None: ...

    def ready(self, name: str, pid: int, url: str | None, took_s: float) -> None: ...

    def unready(self, name: str, reason: str) -> None: ...

    def died(self, name: str, pid: int, how: str, last_words: str, restart_in_s: float, log: str) -> None: ...

    def stack_ready(self, addresses: dict[str, str], took_s: float) -> None: ...

    def stopping(self) -> None: ...

    def killed(self, names: list[str]) -> None: ...

    def stopped(self) -> None: ...


class LineAnnouncer:
    """One line per event; click drops the colours where the output is no terminal."""

    def started(self, name: str, pid: int) -> None:
        pass  # the ready line says it; a line for both would double the noise

    def ready(self, name: str, pid: int, url: str | None, took_s: float) -> None:
        self._line("✓", "green", f"{name:<10} ready in {took_s:.1f} s{f'  {url}' if url else ''}")

    def unready(self, name: str, reason: str) -> None:
        self._line("!", "yellow", f"{name} is not ready: {reason}")

    def died(self, name: str, pid: int, how: str, last_words: str, restart_in_s: float, log: str) -> None:
        said = f" ({last_words})" if last_words else ""
        self._line(
            "✗",
            "red",
            f"{name} (pid {pid}) {how}{said}; starting it again in {restart_in_s:.0f} s; log: {log}",
        )

    def stack_ready(self, addresses: dict[str, str], took_s: float) -> None:
        click.echo(f"\nHeadrace is ready ({took_s:.1f} s). Ctrl-C stops it.")
        for name, address in addresses.items():
            click.echo(f"  {name:<10} {address}")
        sys.stdout.flush()

    def stopping(self) -> None:
        click.echo("stopping ...")

    def killed(self, names: list[str]) -> None:
        self._line("!", "yellow", f"{', '.join(names)} did not stop in time and got killed")

    def stopped(self) -> None:
        click.echo("stopped")

    def _line(self, mark: str, colour: str, text: str) -> None:
        click.echo(f"{click.style(mark, fg=colour)} {text}")
        sys.stdout.flush()


class JsonAnnouncer:
    """One JSON object per line on stdout: `event`, `at` (Unix time) and the event's own fields."""

    def started(self, name: str, pid: int) -> None:
        self._emit("process.started", process=name, pid=pid)

    def ready(self, name: str, pid: int, url: str | None, took_s: float) -> None:
        self._emit("process.ready", process=name, pid=pid, url=url, took_s=round(took_s, 3))

    def unready(self, name: str, reason: str) -> None:
        self._emit("process.unready", process=name, reason=reason)

    def died(self, name: str, pid: int, how: str, last_words: str, restart_in_s: float, log: str) -> None:
        self._emit(
            "process.died",
            process=name,
            pid=pid,
            how=how,
            last_words=last_words,
            restart_in_s=round(restart_in_s, 3),
            log=log,
        )

    def stack_ready(self, addresses: dict[str, str], took_s: float) -> None:
        self._emit("stack.ready", addresses=addresses, took_s=round(took_s, 3))

    def stopping(self) -> None:
        self._emit("stack.stopping")

    def killed(self, names: list[str]) -> None:
        self._emit("stack.killed", processes=names)

    def stopped(self) -> None:
        self._emit("stack.stopped")

    def _emit(self, event: str, **fields: object) -> None:
        print(json.dumps({"event": event, "at": round(time.time(), 3), **fields}), flush=True)
