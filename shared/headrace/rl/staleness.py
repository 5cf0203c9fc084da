"""The chain of policy versions behind the trainer's weights, across restarts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from headrace.contracts.policy import PolicyVersion
from headrace.errors import DataError


@dataclass(frozen=True)
class PolicyHistory:
    """Which versions are ancestors of (or are) the trainer's weights.

    `ranges` are (timeline, first n, last n), oldest first. A restart opens a timeline that
    publishes the restored weights again under the same n, so n counts the updates behind the
    weights on the whole chain: (1, 3) and (2, 3) are equal when the second was restored from the
    first.

    >>> history = PolicyHistory.start(PolicyVersion(timeline=1, n=0))
    >>> history.append(PolicyVersion(timeline=1, n=1)).append(PolicyVersion(timeline=2, n=1)).to_json()
    [[1, 0, 1], [2, 1, 1]]
    """

    ranges: tuple[tuple[int, int, int], ...]

    def __post_init__(self) -> None:
        if not self.ranges:
            raise ValueError("a history needs at least one version")
        for timeline, first, last in self.ranges:
            if first > last:
                raise ValueError(f"versions {first} to {last} of timeline {timeline} are no range")
        for (timeline, _, last), (next_timeline, first, _) in zip(self.ranges, self.ranges[1:], strict=False):
            if next_timeline <= timeline or first not in (last, last + 1):
                raise ValueError(f"version {next_timeline}.{first} cannot follow {timeline}.{last}")

    @classmethod
    def start(cls, version: PolicyVersion) -> Self:
        return cls(((version.timeline, version.n, version.n),))

    @property
    def newest(self) -> PolicyVersion:
        timeline, _, last = self.ranges[-1]
        return PolicyVersion(timeline=timeline, n=last)

    def contains(self, version: PolicyVersion) -> bool:
        return any(
            version.timeline == timeline and first <= version.n <= last
            for timeline, first, last in self.ranges
        )

    def append(self, version: PolicyVersion) -> Self:
        """The history with `version` as its newest; appending the newest again changes nothing.

        Raises ValueError where `version` is no successor of the newest.
        """
        newest = self.newest
        if version == newest:
            return self
        if version.timeline == newest.timeline and version.n == newest.n + 1:
            timeline, first, _ = self.ranges[-1]
            return type(self)((*self.ranges[:-1], (timeline, first, version.n)))
        return type(self)((*self.ranges, (version.timeline, version.n, version.n)))

    def staleness(self, version: PolicyVersion, current: PolicyVersion) -> int:
        """Updates published after `version` up to `current`; 0 when the weights are equal.

        Raises DataError when one of them is not in this history: weights of an abandoned branch
        are of no known age.
        """
        for one in (version, current):
            if not self.contains(one):
                raise DataError(f"policy version {one} is not among the ancestors of {self.newest}")
        return current.n - version.n

    def to_json(self) -> list[list[int]]:
        """`[[timeline, first, last], ...]`, as checkpoints store it."""
        return [list(entry) for entry in self.ranges]

    @classmethod
    def from_json(cls, entries: Iterable[Sequence[int]]) -> Self:
        return cls(tuple((entry[0], entry[1], entry[2]) for entry in entries))
