"""Metric points of one job in memory, and fewer points that look the same.

A chart is about a thousand pixels wide: of 100,000 points it can show the extremes of each pixel
column and nothing more, so those are what is sent.
"""

from __future__ import annotations

import math
import threading
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Column = list[float | None]


class Series:
    """Values by name and step. Adding a point again replaces its value. Safe between threads."""

    def __init__(self) -> None:
        self._steps: dict[str, array[int]] = {}
        self._values: dict[str, array[float]] = {}
        self._lock = threading.Lock()
        self.last_step = -1

    def add(self, points: Iterable[Mapping[str, Any]]) -> int:
        """Take points as the API gives them (null is not a number); returns how many were new or changed."""
        with self._lock:
            return sum(self._put(p["name"], int(p["step"]), _float(p["value"])) for p in points)

    def _put(self, name: str, step: int, value: float) -> bool:
        steps = self._steps.setdefault(name, array("q"))
        values = self._values.setdefault(name, array("d"))
        self.last_step = max(self.last_step, step)
        if not steps or step > steps[-1]:
            steps.append(step)
            values.append(value)
            return True
        at = bisect_left(steps, step)
        if at < len(steps) and steps[at] == step:
            is_same = values[at] == value or (math.isnan(values[at]) and math.isnan(value))
            values[at] = value
            return not is_same
        steps.insert(at, step)
        values.insert(at, value)
        return True

    def names(self) -> set[str]:
        with self._lock:
            return set(self._steps)

    def last(self, name: str) -> float | None:
        with self._lock:
            values = self._values.get(name)
            return values[-1] if values else None

    def first(self, name: str) -> float | None:
        with self._lock:
            values = self._values.get(name)
            return values[0] if values else None

    def since(self, step: int) -> list[tuple[str, int, float]]:
        """Points with a step of at least `step`, as (name, step, value)."""
        found = []
        with self._lock:
            for name, steps in self._steps.items():
                at = bisect_left(steps, step)
                found += [(name, s, v) for s, v in zip(steps[at:], self._values[name][at:], strict=True)]
        return found

    def table(
        self, names: Sequence[str], n_buckets: int, first: int | None = None, last: int | None = None
    ) -> tuple[list[int], list[Column]]:
        """Steps and one column per name over them, at most about `2 * n_buckets` points per name.

        `first` and `last` bound the steps (both included). A name without a value at a step has None there.
        """
        with self._lock:
            taken = {name: self._slice(name, first, last) for name in names if name in self._steps}
        wanted: set[int] = set()
        for steps, values in taken.values():
            wanted.update(steps[i] for i in extremes(values, n_buckets))
        xs = sorted(wanted)
        return xs, [self._column(taken.get(name), xs) for name in names]

    def _slice(self, name: str, first: int | None, last: int | None) -> tuple[array[int], array[float]]:
        steps = self._steps[name]
        start = 0 if first is None else bisect_left(steps, first)
        end = len(steps) if last is None else bisect_left(steps, last + 1)
        return steps[start:end], self._values[name][start:end]

    @staticmethod
    def _column(taken: tuple[array[int], array[float]] | None, xs: list[int]) -> Column:
        if taken is None:
            return [None] * len(xs)
        steps, values = taken
        column: Column = []
        at = 0
        for x in xs:
            at = bisect_left(steps, x, at)
            has_value = at < len(steps) and steps[at] == x and math.isfinite(values[at])
            column.append(values[at] if has_value else None)
        return column


def _float(value: float | None) -> float:
    return math.nan if value is None else float(value)


def extremes(values: Sequence[float], n_buckets: int) -> list[int]:
    """Indices to keep so that a line keeps its shape: first, last, and each bucket's smallest and largest.

    >>> extremes([0.0, 9.0, 1.0, 2.0, -5.0, 3.0], 2)
    [0, 1, 4, 5]
    """
    n = len(values)
    if n <= 2 * n_buckets:
        return list(range(n))
    kept = {0, n - 1}
    for bucket in range(n_buckets):
        low, high = bucket * n // n_buckets, (bucket + 1) * n // n_buckets
        finite = [i for i in range(low, high) if math.isfinite(values[i])]
        if finite:
            kept.add(min(finite, key=values.__getitem__))
            kept.add(max(finite, key=values.__getitem__))
    return sorted(kept)


def thin(values: Sequence[float], n_buckets: int) -> list[float]:
    """Fewer values of the same shape, for a sparkline."""
    return [values[i] for i in extremes(values, n_buckets)]
