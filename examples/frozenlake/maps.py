"""The 4x4 maps of FrozenLake by seed: those to train on and those held out.

Random maps repeat: more than half of the maps of fresh seeds occur among the training maps. So the
held-out seeds (`held_out.py`) are filtered by content: none of their maps is a training map, and
all of them differ.
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache

SIZE = 4
FROZEN = 0.8
"""Probability that a tile is frozen; the generator redraws until the goal can be reached."""

TRAINING_SEEDS = range(2000)
FIRST_HELD_OUT_SEED = 10_000

Map = tuple[str, ...]
"""Rows from the top, of S (start), F (frozen), H (hole), G (goal)."""
Tile = tuple[int, int]
"""(row, column) from the top left."""

ACTIONS = "LDRU"
"""Letter i is Gymnasium's action i."""
STEPS: dict[str, Tile] = {"L": (0, -1), "D": (1, 0), "R": (0, 1), "U": (-1, 0)}


@lru_cache(maxsize=8192)
def map_of(seed: int) -> Map:
    """The map that a seed names."""
    from gymnasium.envs.toy_text.frozen_lake import generate_random_map

    return tuple(generate_random_map(size=SIZE, p=FROZEN, seed=seed))


def held_out_seeds(n: int) -> tuple[int, ...]:
    """The first `n` seeds whose maps differ from every training map and from each other."""
    seen = {map_of(seed) for seed in TRAINING_SEEDS}
    kept: list[int] = []
    seed = FIRST_HELD_OUT_SEED
    while len(kept) < n:
        if map_of(seed) not in seen:
            seen.add(map_of(seed))
            kept.append(seed)
        seed += 1
    return tuple(kept)


def draw(rows: Map, player: Tile) -> str:
    """The map as the policy reads it: four rows with `P` where the player stands."""
    row, column = player
    return "\n".join(
        text[:column] + "P" + text[column + 1 :] if index == row else text for index, text in enumerate(rows)
    )


def move(player: Tile, action: str) -> Tile:
    """The tile behind one move; the edge of the lake holds the player."""
    step = STEPS[action]
    return (min(max(player[0] + step[0], 0), SIZE - 1), min(max(player[1] + step[1], 0), SIZE - 1))


def shortest_moves(rows: Map) -> dict[Tile, str]:
    """For each tile from which the goal can be reached without a hole: the first move of a shortest way."""
    goal: Tile = (SIZE - 1, SIZE - 1)
    best: dict[Tile, str] = {}
    distance: dict[Tile, int] = {goal: 0}
    queue: deque[Tile] = deque([goal])
    while queue:
        tile = queue.popleft()
        for action in ACTIONS:
            back = STEPS[action]
            before = (tile[0] - back[0], tile[1] - back[1])
            inside = 0 <= before[0] < SIZE and 0 <= before[1] < SIZE
            if inside and before not in distance and rows[before[0]][before[1]] != "H":
                distance[before] = distance[tile] + 1
                best[before] = action
                queue.append(before)
    return best
