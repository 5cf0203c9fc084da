"""What differs between the demos: the files of an example and how its episodes are drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Recipe:
    """An example with a task app, a base model, demonstrations and the configs beside them.

    The folder holds sft.toml, rl.toml, eval.toml, eval_greedy.toml and eval_blind.toml.
    """

    name: str
    package: str
    """`examples.walk`: holds the modules `app`, `base_model` and `demonstrations`."""
    folder: Path
    home: str
    """Name of the home folder under `.headrace`, unless HEADRACE_HOME is set."""
    alias: str
    """Name of the base model in the configs."""
    task: str
    """What the policy has to do, in a few words."""
    held_out: str
    """What it is measured on, in a few words."""
    draw: Callable[[dict[str, Any]], str]
    """A recorded trajectory as text for a terminal."""
    controls: dict[str, Callable[[], float]] = field(default_factory=dict)
    """Success of players that need no model, by name; the trained policy must be above each."""

    @property
    def app(self) -> str:
        return f"{self.package}.app:app"

    def config(self, name: str) -> Path:
        return self.folder / f"{name}.toml"
