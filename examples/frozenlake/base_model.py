"""Make the tiny base model of FrozenLake: `python -m examples.frozenlake.base_model FOLDER [SEED]`.

Each row of a map is one token. With a token per tile the model would first have to learn columns,
which costs more than the minutes that this demo has.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

from examples import tiny_model
from examples.frozenlake.prompt import SYSTEM


def rows() -> tuple[str, ...]:
    """Every row that can be shown: S only at the left end, G only at the right, P at most once."""
    inner = ("F", "H", "P")
    texts = ("".join(tiles) for tiles in itertools.product((*inner, "S"), inner, inner, (*inner, "G")))
    return tuple(text for text in texts if text.count("P") <= 1 and not ("S" in text and "G" in text))


def words() -> tuple[str, ...]:
    """The rows, each with the line break before it, and the words of the system message."""
    spoken = [word.strip(",.") for word in SYSTEM.split()]
    first, *others = [word for word in spoken if len(word) > 1]
    return ("\n" + first, *others, *("\n" + row for row in rows()))


def make(folder: Path, seed: int = 0) -> int:
    """Write the base model; returns the number of parameters."""
    return tiny_model.make(folder, words(), seed)


if __name__ == "__main__":
    print(f"{make(Path(sys.argv[1]), *map(int, sys.argv[2:])):,} parameters")
