"""The walk as a task app: `headrace serve examples.walk.app:app`."""

from __future__ import annotations

from typing import Any

from examples.walk.blind import BlindWalk
from examples.walk.environment import Walk
from examples.walk.goals import HELD_OUT_SEEDS, TRAINING_SEEDS
from examples.walk.moves import MAX_TURNS
from headrace.task_app import TaskApp


def environment(config: dict[str, Any]) -> Walk:
    """`[rollout.env_config] blind = true` plays the control."""
    return BlindWalk() if config.get("blind") else Walk()


app = TaskApp(
    environment,
    task_id="walk",
    description="Walk to a goal in two turns",
    splits={"train": TRAINING_SEEDS, "held_out": HELD_OUT_SEEDS},
    reward_range=(0.0, 1.0),
    max_turns=MAX_TURNS,
    auth="none",
)
