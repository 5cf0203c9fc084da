"""One child process: started in its own group, tied to the life of the supervisor, stopped with its group."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

from headrace_cli.stack.backoff import Backoff
from headrace_cli.stack.logs import last_line
from headrace_cli.stack.specs import ProcessSpec

_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


class State(StrEnum):
    """Where a process of the stack stands."""

    WAITING = "waiting"
    """For the processes that it starts after."""
    STARTING = "starting"
    READY = "ready"
    UNREADY = "unready"
    """It was ready, runs, and says that it is not (`reason` holds why)."""
    RESTARTING = "restarting"
    """It died; it is started again when its backoff has passed."""
    STOPPED = "stopped"


def adopt_orphans() -> None:
    """Make this process the parent of descendants whose own parent dies, so that a stop finds them."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _die_with_parent(parent: int, death_signal: int) -> Callable[[], None]:
    def in_child() -> None:
        if _LIBC is not None:
            _LIBC.prctl(_PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
        if os.getppid() != parent:  # it died between fork and prctl
            os._exit(1)

    return in_child


class Child:
    """The running side of a `ProcessSpec`. Start it from the main thread only: the kernel sends the
    death signal when the *thread* that forked is gone."""

    def __init__(self, spec: ProcessSpec, log: Path, backoff: Backoff) -> None:
        self.spec = spec
        self.log = log
        self.state = State.WAITING
        self.reason = ""
        self.restarts = 0
        self.was_ready = False
        self.started_at = 0.0
        self.backoff_s = 0.0
        self.restart_at = 0.0
        self.since = time.time()
        self._backoff = backoff
        self._ready_at = 0.0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def start(self) -> None:
        """Start the process; its output goes to the end of its log."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.spec.argv,
                env=dict(self.spec.env),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_die_with_parent(os.getpid(), self.spec.death_signal),
            )
        self.started_at = time.monotonic()
        self._ready_at = 0.0
        self._enter(State.STARTING)

    def reap(self) -> str | None:
        """If the process has died: bury its group and say how it ended (None while it lives)."""
        if self._process is None or (code := self._process.poll()) is None:
            return None
        self.kill()
        ready_for = time.monotonic() - self._ready_at if self._ready_at else 0.0
        self._process = None
        how = _how(code)
        self.reason = how
        self.backoff_s = self._backoff.delay(ready_for)
        self.restart_at = time.monotonic() + self.backoff_s
        self._enter(State.RESTARTING)
        return how

    def observe(self, reason: str | None) -> State | None:
        """Take in what a probe said (None: ready); returns the new state when it changed."""
        if reason is None:
            self._ready_at = self._ready_at or time.monotonic()
            self.was_ready, self.reason = True, ""
            return self._enter(State.READY)
        if self.state is State.READY:
            self.reason = reason
            return self._enter(State.UNREADY)
        self.reason = reason
        return None

    def last_words(self) -> str:
        return last_line(self.log)

    def terminate(self) -> None:
        """Ask the process, and only it, to stop: it stops its own children in its own order."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def kill(self) -> None:
        """End what is left of the process's group."""
        if self._process is not None:
            with suppress(ProcessLookupError, PermissionError):  # nobody is left
                os.killpg(self._process.pid, signal.SIGKILL)

    def bury(self) -> None:
        """Kill the group and wait for the process; afterwards it is stopped."""
        if self._process is not None:
            self.kill()
            self._process.wait()
            self._process = None
        self._enter(State.STOPPED)

    def _enter(self, state: State) -> State | None:
        if self.state is state:
            return None
        self.state, self.since = state, time.time()
        return state


def _how(code: int) -> str:
    """An exit status in words.

    >>> _how(1), _how(-9)
    ('exited with code 1', 'was ended by SIGKILL')
    """
    if code < 0:
        try:
            return f"was ended by {signal.Signals(-code).name}"
        except ValueError:
            return f"was ended by signal {-code}"
    return f"exited with code {code}"
