"""Which task seeds come next: a pure function of a position, so a checkpoint holds one integer."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

from headrace.errors import ConfigError


class SeedSchedule:
    """The endless list of task seeds: epoch after epoch, each seed once per epoch.

    `position` counts the seeds drawn so far, replacements included.

    >>> SeedSchedule([5, 6, 7], "sequential", 0).draw(2, 2)
    ([7, 5], 4)
    """

    def __init__(self, seeds: Sequence[int], order: Literal["shuffle", "sequential"], seed: int) -> None:
        """Raises ConfigError for an empty list or one with a seed twice."""
        if not seeds:
            raise ConfigError("[training.rollouts] seeds is empty; name at least one seed")
        if len(set(seeds)) != len(seeds):
            twice = next(value for value in seeds if list(seeds).count(value) > 1)
            raise ConfigError(f"[training.rollouts] seeds holds {twice} more than once; list each seed once")
        self._seeds = tuple(seeds)
        self._order = order
        self._seed = seed
        self._epoch = lru_cache(maxsize=2)(self._permutation)

    def draw(self, position: int, n: int) -> tuple[list[int], int]:
        """The next `n` seeds after `position`, and the position behind them."""
        drawn = []
        for index in range(position, position + n):
            epoch, offset = divmod(index, len(self._seeds))
            drawn.append(self._epoch(epoch)[offset])
        return drawn, position + n

    def _permutation(self, epoch: int) -> tuple[int, ...]:
        if self._order == "sequential":
            return self._seeds
        shuffled = list(self._seeds)
        random.Random(f"{self._seed}/{epoch}").shuffle(shuffled)
        return tuple(shuffled)
