"""How `headrace up` speaks: lines for people (coloured on a terminal), or one JSON object per line."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Protocol

import click

if TYPE_CHECKING:
    from rich.status import Status


def _say(text: str) -> None:
    """A line on stdout. When nobody reads it any more (`| head`, a closed terminal) the stack goes on."""
    try:
        click.echo(text)
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Announcer(Protocol):
    """What the supervisor tells as it happens."""

    def waiting(self, reasons: dict[str, str]) -> None:
        """Which processes were not ready yet, and why; said whenever that changes during the start."""

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

    def waiting(self, reasons: dict[str, str]) -> None:
        pass

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
        _say(f"\nHeadrace is ready ({took_s:.1f} s). Ctrl-C stops it.")
        for name, address in addresses.items():
            _say(f"  {name:<10} {address}")

    def stopping(self) -> None:
        _say("stopping ...")

    def killed(self, names: list[str]) -> None:
        self._line("!", "yellow", f"{', '.join(names)} did not stop in time and got killed")

    def stopped(self) -> None:
        _say("stopped")

    def _line(self, mark: str, colour: str, text: str) -> None:
        _say(f"{click.style(mark, fg=colour)} {text}")


class TerminalAnnouncer(LineAnnouncer):
    """The same lines, and below them what the start is still waiting for."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console()
        self._status: Status | None = None

    def waiting(self, reasons: dict[str, str]) -> None:
        from rich.text import Text

        if self._status is None:
            self._status = self._console.status("")
            self._status.start()
        listed = ", ".join(reasons) if len(reasons) != 1 else ": ".join(*reasons.items())
        self._status.update(Text(f"waiting for {listed}", "dim", no_wrap=True, overflow="ellipsis"))

    def stack_ready(self, addresses: dict[str, str], took_s: float) -> None:
        self._clear()
        super().stack_ready(addresses, took_s)

    def stopping(self) -> None:
        self._clear()
        super().stopping()

    def _line(self, mark: str, colour: str, text: str) -> None:
        from rich.text import Text

        self._console.print(Text.assemble((mark, colour), f" {text}"), soft_wrap=True)

    def _clear(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None


class JsonAnnouncer:
    """One JSON object per line on stdout: `event`, `at` (Unix time) and the event's own fields."""

    def waiting(self, reasons: dict[str, str]) -> None:
        pass

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
        _say(json.dumps({"event": event, "at": round(time.time(), 3), **fields}))


def announcer(as_json: bool) -> Announcer:
    """The announcer for this stdout."""
    if as_json:
        return JsonAnnouncer()
    return TerminalAnnouncer() if sys.stdout.isatty() else LineAnnouncer()
