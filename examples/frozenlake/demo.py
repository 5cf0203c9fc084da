"""`python -m examples.frozenlake.demo`: FrozenLake turn by turn, in under fifteen minutes on two cores."""

from __future__ import annotations

from pathlib import Path

from examples.demo import command, episodes
from examples.demo.episodes import Trajectory
from examples.demo.recipe import Recipe
from examples.frozenlake import blind
from examples.frozenlake.held_out import HELD_OUT_SEEDS
from examples.frozenlake.maps import map_of

ARROWS = {"L": "←", "D": "↓", "R": "→", "U": "↑"}


def draw(trajectory: Trajectory) -> str:
    """The map with an arrow on each tile that was left (the last one taken there), and the moves below."""
    steps = episodes.steps(trajectory)
    board = [list(row) for row in map_of(trajectory["seed"])]
    for shown, answer in steps:
        rows = shown.split("\n")
        row = next(index for index, text in enumerate(rows) if "P" in text)
        board[row][rows[row].index("P")] = ARROWS.get(answer, "?")
    verdict = "reached G" if episodes.outcome(trajectory) >= 1 else "did not reach G"
    return "\n".join([*(" ".join(row) for row in board), "".join(answer for _, answer in steps), verdict])


def held_out_maps():
    return [map_of(seed) for seed in HELD_OUT_SEEDS]


RECIPE = Recipe(
    name="frozenlake",
    package="examples.frozenlake",
    folder=Path(__file__).parent,
    home="demo-frozenlake",
    alias="tiny-frozenlake",
    task="reach G on a frozen lake, one move per turn",
    held_out="400 maps that do not occur in training",
    draw=draw,
    controls={
        "blind: right or down by a coin": lambda: blind.random_blind_walk(held_out_maps()),
        "blind: best fixed way in hindsight": lambda: blind.best_blind_walk(held_out_maps())[1],
    },
)

main = command.make(RECIPE)

if __name__ == "__main__":
    main()
