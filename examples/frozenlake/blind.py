"""Controls that do not see the map: how far chance and habit go on FrozenLake."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from examples.frozenlake.environment import FrozenLake
from examples.frozenlake.maps import SIZE, Map, draw, map_of, move

CONSTANT = draw(map_of(0), (0, 0))
"""A training map at its start, so that the policy knows what it reads."""


class BlindFrozenLake(FrozenLake):
    """The same lake, but whatever happens, the policy reads the same constant."""

    def render(self, observation: Any) -> str:
        return CONSTANT


def walks() -> list[str]:
    """The 20 ways from start to goal that only go right and down."""
    n = SIZE - 1
    return ["".join(way) for way in sorted(set(itertools.permutations("R" * n + "D" * n)))]


def survives(rows: Map, way: str) -> bool:
    """Whether a fixed way to the goal meets no hole of this map."""
    player = (0, 0)
    for action in way:
        player = move(player, action)
        if rows[player[0]][player[1]] == "H":
            return False
    return True


def best_blind_walk(maps: Iterable[Map]) -> tuple[str, float]:
    """The fixed way that succeeds most often on `maps`, chosen in hindsight: a ceiling for the blind."""
    maps = list(maps)
    return max(
        ((way, sum(survives(rows, way) for rows in maps) / len(maps)) for way in walks()),
        key=lambda scored: scored[1],
    )


def random_blind_walk(maps: Iterable[Map]) -> float:
    """Expected success of going right or down by a coin: right at the right edge stays where it is.

    Given 10 turns the coin nearly always brings both sums together; computed exactly by dynamic
    programming over (tile, turn).
    """
    maps = list(maps)
    return sum(_coin_success(rows) for rows in maps) / len(maps)


def _coin_success(rows: Map, n_turns: int = 10) -> float:
    at = {(0, 0): 1.0}
    success = 0.0
    for _ in range(n_turns):
        after: dict[tuple[int, int], float] = {}
        for player, probability in at.items():
            for action in "RD":
                tile = move(player, action)
                tile_text = rows[tile[0]][tile[1]]
                if tile_text == "G":
                    success += probability / 2
                elif tile_text != "H":
                    after[tile] = after.get(tile, 0.0) + probability / 2
        at = after
    return success
