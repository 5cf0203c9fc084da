"""What a child process of the stack is: its command, how it shows readiness, and its place in the order."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace_cli.stack.probes import Probe

STOP_FIRST, STOP_NEXT, STOP_LAST = 0, 1, 2
"""Stages of a stop: those that make work, those that serve it, and the store that all of them need."""


@dataclass(frozen=True)
class ProcessSpec:
    """One child process. `env` is its whole environment."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    probe: Probe
    url: str | None = None
    """Where a person or a client reaches it."""
    after: tuple[str, ...] = ()
    """Processes that must have been ready before this one starts."""
    stop_stage: int = STOP_FIRST
    death_signal: int = field(default=signal.SIGKILL)
    """What the kernel sends it when the supervisor is gone (Linux)."""
