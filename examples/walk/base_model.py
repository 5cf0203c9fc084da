"""Make the tiny base model of the walk: `python -m examples.walk.base_model FOLDER [SEED]`."""

from __future__ import annotations

import sys
from pathlib import Path

from examples import tiny_model


def make(folder: Path, seed: int = 0) -> int:
    """Write the base model; returns the number of parameters. Moves and numbers are single bytes."""
    return tiny_model.make(folder, seed=seed)


if __name__ == "__main__":
    print(f"{make(Path(sys.argv[1]), *map(int, sys.argv[2:])):,} parameters")
