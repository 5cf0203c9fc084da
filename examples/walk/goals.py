"""The 80 goals of the walk: 60 to train on, 20 held out, and the seeds that name them.

The held-out list was drawn once (`random.Random(1).sample(ALL, 20)`) and is fixed here: no
demonstration, no training seed and no prompt shown in training contains one of them.
"""

from __future__ import annotations

REACH = 4
"""A goal lies at most so many squares away on each axis."""

Goal = tuple[int, int]
"""What is left to walk, as (right, up); negative is left and down."""

ALL: tuple[Goal, ...] = tuple(
    (x, y)
    for x in range(-REACH, REACH + 1)
    for y in range(-REACH, REACH + 1)
    if (x, y) != (0, 0)
)  # fmt: skip

HELD_OUT: tuple[Goal, ...] = (
    *((-4, -4), (-4, -1), (-4, 4), (-3, -1), (-3, 2), (-3, 4), (-2, 4), (-1, 1), (1, -2), (1, 0)),
    *((1, 1), (1, 3), (2, -2), (2, 0), (2, 3), (3, -4), (3, -3), (4, -3), (4, -2), (4, 4)),
)

TRAINING: tuple[Goal, ...] = tuple(goal for goal in ALL if goal not in HELD_OUT)

TRAINING_SEEDS = range(len(TRAINING))
HELD_OUT_SEEDS = range(1000, 1000 + len(HELD_OUT))


def is_held_out_seed(seed: int) -> bool:
    return seed >= HELD_OUT_SEEDS.start


def goal_of(seed: int) -> Goal:
    """The goal that a seed names; seeds beyond the lists go round them again."""
    if is_held_out_seed(seed):
        return HELD_OUT[(seed - HELD_OUT_SEEDS.start) % len(HELD_OUT)]
    return TRAINING[seed % len(TRAINING)]


def describe(left: Goal) -> str:
    """What is left to walk as the policy reads it: `(3, -2)` is `x+3 y-2`."""
    return f"x{left[0]:+d} y{left[1]:+d}"
