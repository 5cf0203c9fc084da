"""Keys that modules of the trainer follow and no other test shows."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from tests.fakes.trajectories import VERSION, make_call, make_trajectory
from tests.unit.config.effects import BASES

from headrace.config.load import load
from headrace.config.rl import RLConfig
from headrace.config.sft import SFTConfig
from headrace.contracts.job import JobType
from headrace.rl.staleness import PolicyHistory
from headrace_trainer import sft_loop
from headrace_trainer.lesson import lesson_of
from headrace_trainer.optimizer import make_optimizer
from headrace_trainer.saving import Saver

NOTHING = cast(Any, None)


def sft_run(hyperparameters: dict[str, Any], validation: dict[str, Any] | None = None) -> sft_loop.SFTRun:
    """A run of 20 steps, two epochs of ten."""
    training = {"training": {"validation": validation}} if validation else {}
    raw = {**BASES[JobType.SFT], **training, "hyperparameters": {"batch_size": 1, **hyperparameters}}
    config = load(raw, JobType.SFT, strict=True).config
    assert isinstance(config, SFTConfig)
    return sft_loop.SFTRun(
        job=NOTHING,
        config=config,
        base=NOTHING,
        model=NOTHING,
        optimizer=NOTHING,
        rows=[NOTHING] * 10,
        validation_rows=[],
        total=20,
        saver=NOTHING,
        folder=Path(),
    )


def test_a_share_of_the_steps_warms_up_unless_steps_are_given() -> None:
    assert sft_run({"learning_rate": 1.0, "warmup_ratio": 0.5}).learning_rate(5) == pytest.approx(0.5)
    run = sft_run({"learning_rate": 1.0, "warmup_ratio": 0.5, "warmup_steps": 5})
    assert run.learning_rate(5) == pytest.approx(1.0)
    assert sft_run({"learning_rate": 1.0}).learning_rate(1) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("validation", "steps"),
    [
        (None, [10, 20]),
        ({"eval_steps": 4}, [4, 8, 12, 16, 20]),
        ({"eval_steps": 4, "evaluation_strategy": "epoch"}, [10, 20]),
        ({"eval_steps": 4, "enabled": False}, []),
    ],
)
def test_validation_comes_when_its_keys_say(validation: dict[str, Any] | None, steps: list[int]) -> None:
    run = sft_run({}, validation)
    assert [step for step in range(1, 21) if sft_loop._validates_at(run, step)] == steps


def test_a_checkpoint_is_kept_after_each_so_many_iterations() -> None:
    saver = Saver(NOTHING, keep_every=3, total=7, cost_s=100.0)
    assert [position for position in range(1, 8) if saver.is_due(position, 1.0)] == [3, 6, 7]


def test_the_optimiser_has_the_betas_of_the_config() -> None:
    optimizer = make_optimizer(torch.nn.Linear(2, 2), learning_rate=1.0, weight_decay=0.0, betas=(0.1, 0.2))
    assert {group["betas"] for group in optimizer.param_groups} == {(0.1, 0.2)}


def test_groups_without_a_signal_are_left_out_only_where_asked() -> None:
    def left_out(drop: bool, *rewards: float) -> list[str | None]:
        raw = {**BASES[JobType.RL], "training": {"drop_zero_variance_groups": drop}}
        config = load(raw, JobType.RL, strict=True).config
        assert isinstance(config, RLConfig)
        played = [
            make_trajectory(make_call(0, [1], [2]), rollout_id=f"r{member}", reward=reward)
            for member, reward in enumerate(rewards)
        ]
        members = [SimpleNamespace(trajectory=one) for one in played]
        group = cast(Any, SimpleNamespace(members=members))
        found = lesson_of([group], config, PolicyHistory.start(VERSION), VERSION, 100)
        assert len(found.batch.rows) == sum(one.not_trained_reason is None for one in found.rollouts)
        return [one.not_trained_reason for one in found.rollouts]

    assert all(left_out(True, 1.0, 1.0))
    assert left_out(False, 1.0, 1.0) == [None, None]
    assert left_out(True, 1.0, 0.0) == [None, None]
