"""How long to wait before a process that died is started again."""

from __future__ import annotations

from dataclasses import dataclass

FIRST_S, LONGEST_S, HEALTHY_S = 1.0, 30.0, 60.0


@dataclass
class Backoff:
    """Doubles from one second to half a minute; a process that was healthy for a minute starts over."""

    first_s: float = FIRST_S
    longest_s: float = LONGEST_S
    healthy_s: float = HEALTHY_S
    _next_s: float = 0.0

    def delay(self, lived_s: float) -> float:
        """Seconds to wait now that the process died after being ready for `lived_s` seconds.

        >>> backoff = Backoff()
        >>> [backoff.delay(0), backoff.delay(0), backoff.delay(0), backoff.delay(61)]
        [1.0, 2.0, 4.0, 1.0]
        """
        if lived_s >= self.healthy_s or not self._next_s:
            self._next_s = self.first_s
        now, self._next_s = self._next_s, min(self._next_s * 2, self.longest_s)
        return now
