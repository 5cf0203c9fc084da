"""Failures that only a command knows, and the exit code of each kind.

0 done · 1 refused or failed · 2 the call or the config is wrong · 3 time-out · 130 interrupted
"""

from __future__ import annotations

from headrace.errors import ConfigError, DataError, HeadraceError

FAILED, WRONG_INPUT, TIMED_OUT, INTERRUPTED = 1, 2, 3, 130


class TimedOut(HeadraceError):
    """A wait that the caller bounded has passed its bound."""

    exit_code = TIMED_OUT


class Interrupted(HeadraceError):
    """Ctrl-C while something of ours goes on elsewhere; the message says how to take it up again."""

    exit_code = INTERRUPTED


def exit_code(error: HeadraceError) -> int:
    """The exit code that a command ends with after `error`."""
    own = getattr(error, "exit_code", None)
    if isinstance(own, int):
        return own
    return WRONG_INPUT if isinstance(error, ConfigError | DataError) else FAILED
