"""When a rollout's waits have to end: its deadline, and what is looked at between waits."""

from __future__ import annotations

import time
from collections.abc import Callable

LOOK_EVERY_S = 1.0


class Stopped(Exception):
    """A wait was ended from outside; `str(stopped)` is the reason, one sentence."""


class DeadlinePassed(Stopped):
    """The rollout's whole time is over."""


class Cancelled(Stopped):
    """The job was cancelled, or a newer timeline took over: the attempt is kept as a record."""


class Dropped(Stopped):
    """Somebody else has the rollout now (lease lost, newer attempt): nothing is said about it."""


class WorkerStops(Stopped):
    """This process was asked to end: the order goes back to its queue."""


class Watch:
    """One total deadline for all waits of a rollout, whatever the number of reads they take.

    `look` raises a `Stopped`; it is called at most once per `LOOK_EVERY_S`.
    """

    def __init__(self, seconds: float, look: Callable[[], None] = lambda: None) -> None:
        self._deadline = time.monotonic() + seconds
        self._seconds, self._look = seconds, look
        self._next_look = time.monotonic() + LOOK_EVERY_S

    def slice_s(self) -> float:
        """Seconds that may be waited before asking again; raises a Stopped instead of 0."""
        now = time.monotonic()
        if now >= self._deadline:
            raise DeadlinePassed(f"not finished within {self._seconds:g} s")
        if now >= self._next_look:
            self._next_look = now + LOOK_EVERY_S
            self._look()
        return min(LOOK_EVERY_S, self._deadline - now)

    def pause(self, seconds: float) -> None:
        """Sleep, looking as often as any other wait."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, self.slice_s()))

    @property
    def remaining_s(self) -> float:
        return max(0.0, self._deadline - time.monotonic())
