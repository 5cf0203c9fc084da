"""`python -m examples.walk.demo`: from nothing to a better policy in about five minutes on two cores."""

from __future__ import annotations

from pathlib import Path

from examples.demo import command, episodes
from examples.demo.episodes import Trajectory
from examples.demo.recipe import Recipe


def draw(trajectory: Trajectory) -> str:
    """One line per turn: what was left, and the moves that were answered."""
    lines = [f"{left}  →  {answer}" for left, answer in episodes.steps(trajectory)]
    verdict = "reached" if episodes.outcome(trajectory) >= 1 else "missed"
    return "\n".join([*lines, f"{episodes.end(trajectory)}  {verdict}"])


RECIPE = Recipe(
    name="walk",
    package="examples.walk",
    folder=Path(__file__).parent,
    home="demo",
    alias="tiny-walk",
    task="walk to a goal in two turns",
    held_out="20 held-out goals",
    draw=draw,
)

main = command.make(RECIPE)

if __name__ == "__main__":
    main()
