"""The rules of the walk: what an answer means and where it leads. Knows no model and no HTTP."""

from __future__ import annotations

from examples.walk.goals import REACH, Goal

STEPS: dict[str, Goal] = {"R": (1, 0), "L": (-1, 0), "U": (0, 1), "D": (0, -1)}
MAX_MOVES = 2 * REACH
"""Moves in one answer; the farthest goal needs as many."""
MAX_TURNS = 2


def is_answer(text: str) -> bool:
    """True for 1 to 8 letters of R, L, U, D and nothing else."""
    return 1 <= len(text) <= MAX_MOVES and all(letter in STEPS for letter in text)


def walk(left: Goal, answer: str) -> Goal:
    """What is left to walk after the moves of `answer` (which `is_answer`)."""
    for letter in answer:
        left = (left[0] - STEPS[letter][0], left[1] - STEPS[letter][1])
    return left


def straight(left: Goal) -> str:
    """The shortest answer: first along x, then along y."""
    return along_x(left[0]) + along_y(left[1])


def along_x(distance: int) -> str:
    return ("R" if distance > 0 else "L") * abs(distance)


def along_y(distance: int) -> str:
    return ("U" if distance > 0 else "D") * abs(distance)
