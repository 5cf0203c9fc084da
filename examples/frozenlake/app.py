"""FrozenLake as a task app: `headrace serve examples.frozenlake.app:app`."""

from __future__ import annotations

from typing import Any

from examples.frozenlake.blind import BlindFrozenLake
from examples.frozenlake.environment import FrozenLake
from examples.frozenlake.held_out import HELD_OUT_SEEDS
from examples.frozenlake.maps import TRAINING_SEEDS
from examples.frozenlake.prompt import MAX_TURNS
from headrace.task_app import TaskApp


def environment(config: dict[str, Any]) -> FrozenLake:
    """`[rollout.env_config] blind = true` plays the control."""
    return BlindFrozenLake() if config.get("blind") else FrozenLake()


app = TaskApp(
    environment,
    task_id="frozenlake",
    description="Gymnasium's FrozenLake, 4x4 random maps, not slippery, one move per turn",
    splits={"train": TRAINING_SEEDS, "held_out": HELD_OUT_SEEDS},
    reward_range=(0.0, 1.0),
    max_turns=MAX_TURNS,
    auth="none",
)
