"""The configs of the examples: strictly valid, and of the seeds that the examples name."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

import examples
from examples.frozenlake import maps
from examples.frozenlake.held_out import HELD_OUT_SEEDS as HELD_OUT_MAPS
from examples.walk import goals
from headrace.config.evaluation import EvalConfig
from headrace.config.load import infer_type, load, parse_toml
from headrace.config.rl import RLConfig, SeedRange
from headrace.contracts.job import JobType

FOLDER = Path(examples.__file__).parent
CONFIGS = sorted(FOLDER.glob("*/*.toml"))


def config_of(path: Path):
    raw = parse_toml(path.read_text(), path.name)
    job_type = infer_type(raw)
    assert job_type is not None
    return load(raw, job_type, strict=True).config


def rl(example: str) -> RLConfig:
    return cast(RLConfig, config_of(FOLDER / example / "rl.toml"))


def evaluation(example: str, name: str) -> EvalConfig:
    return cast(EvalConfig, config_of(FOLDER / example / f"{name}.toml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_each_config_is_strictly_valid(path: Path):
    assert config_of(path).tags["example"] == path.parent.name


@pytest.mark.parametrize(
    ("name", "job_type"),
    [("sft", JobType.SFT), ("rl", JobType.RL), ("eval", JobType.EVAL), ("eval_greedy", JobType.EVAL)],
)
@pytest.mark.parametrize("example", ["walk", "frozenlake"])
def test_the_type_of_each_config_is_inferred(example: str, name: str, job_type: JobType):
    path = FOLDER / example / f"{name}.toml"
    assert infer_type(parse_toml(path.read_text(), path.name)) is job_type


@pytest.mark.parametrize(
    ("example", "training", "held_out"),
    [
        ("walk", goals.TRAINING_SEEDS, tuple(goals.HELD_OUT_SEEDS)),
        ("frozenlake", maps.TRAINING_SEEDS, HELD_OUT_MAPS),
    ],
)
def test_rl_plays_training_seeds_and_evaluation_held_out_ones(
    example: str, training: range, held_out: tuple[int, ...]
):
    seeds = rl(example).training.rollouts.seeds
    assert isinstance(seeds, SeedRange)
    assert range(seeds.start, seeds.start + seeds.count) == training
    for name in ("eval", "eval_greedy", "eval_blind"):
        assert evaluation(example, name).evaluation_job.seeds == held_out


@pytest.mark.parametrize("example", ["walk", "frozenlake"])
def test_the_evaluations_differ_only_in_what_their_names_say(example: str):
    sampled, greedy, blind = (evaluation(example, name) for name in ("eval", "eval_greedy", "eval_blind"))
    assert sampled.evaluation_job.temperature == blind.evaluation_job.temperature == 1.0
    assert (greedy.evaluation_job.temperature, greedy.evaluation_job.samples) == (0.0, 1)
    assert blind.rollout.env_config == {"blind": True}
    assert blind.rollout.model_copy(update={"env_config": {}}) == sampled.rollout == greedy.rollout
    assert len(sampled.evaluation_job.seeds) * sampled.evaluation_job.samples >= 300
    assert rl(example).ops == sampled.ops
    assert rl(example).max_reply_tokens == sampled.policy.max_tokens
