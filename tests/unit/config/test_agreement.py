"""Every key acts, is refused with its reason, or is on the printed list of what has no effect."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.config.evaluation import EvalConfig
from headrace.config.load import load
from headrace.config.rl import RLConfig
from headrace.config.sft import SFTConfig
from headrace.contracts.job import JobType
from headrace.errors import ConfigError

URL = "http://127.0.0.1:9"


def rl(**changes: Any) -> RLConfig:
    raw = {"services": {"task_url": URL}, "model": {"base": "m"}, **changes}
    config = load(raw, JobType.RL, strict=True).config
    assert isinstance(config, RLConfig)
    return config


def sft(job: dict[str, Any] | None = None, **hyperparameters: Any) -> SFTConfig:
    raw = {"job": {"model": "m", **(job or {})}, "hyperparameters": hyperparameters}
    config = load(raw, JobType.SFT, strict=True).config
    assert isinstance(config, SFTConfig)
    return config


def evaluation(job: dict[str, Any] | None = None, **changes: Any) -> EvalConfig:
    spec = {"task_url": URL, "seeds": [1], **(job or {})}
    config = load(
        {"model": {"base": "m"}, "evaluation_job": spec, **changes}, JobType.EVAL, strict=True
    ).config
    assert isinstance(config, EvalConfig)
    return config


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"rollout": {"policy_config": {"temperature": "hot"}}}, "temperature = 'hot' must be a number"),
        ({"rollout": {"policy_config": {"temperature": 0}}}, "makes all members of a group alike"),
        ({"rollout": {"policy_config": {"max_tokens": "many"}}}, "max_tokens = 'many' must be a whole number"),
        ({"rollout": {"ops": ["agent"]}, "training": {"rollouts": {"ops": ["agent", "env"]}}}, "ops mean the same"),
        ({"rollout": {"batches_per_step": 2}}, "batches_per_step counts batches of [training] batch_size"),
        ({"training": {"rollouts": {"seeds": []}}}, "seeds is an empty list"),
        ({"training": {"rollouts": {"seeds": [1, 2, 1]}}}, "seeds holds 1 more than once"),
        ({"training": {"rollouts": {"seeds": "all"}}}, "[training.rollouts] seeds = 'all': must be a list"),
        ({"training": {"rollouts": {"seeds": {"start": 1}}}}, "missing key [training.rollouts.seeds] count"),
        ({"training": {"rollouts": {"seeds": [2**63]}}}, "[training.rollouts.seeds] 0 = 9223372036854775808"),
        ({"training": {"rollouts": {"record": {"format": "full"}}}}, 'format = "full" is refused: the gateway'),
        ({"training": {"max_turns": 10**9}}, "[training] max_turns = 1000000000"),
        ({"training": {"iterations_per_epoch": 10**12}}, "num_epochs x iterations_per_epoch"),
        ({"evaluation": {"every_n_iters": 5}}, "[evaluation] every_n_iters needs `seeds`"),
        ({"tags": {"a": {"b": 1}}}, "tags: a = {'b': 1} must be text"),
        ({"services": {"task_url": "localhost"}}, "task_url = 'localhost': is no address"),
        ({"services": {"task_url": URL, "policy_url": "http://"}}, "policy_url = 'http://': is no address"),
        ({"model": {}}, "[model] needs exactly one of"),
    ],
)  # fmt: skip
def test_what_cannot_act_is_refused_in_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as error:
        rl(**changes)
    assert sentence in error.value.message
    problems = error.value.details["problems"]
    assert isinstance(problems, list)
    assert len(problems) == 1, problems
    assert "tuple" not in error.value.message


def test_equal_values_of_one_meaning_are_fine() -> None:
    assert rl(training={"group_size": 4, "rollouts": {"rollouts_per_prompt": 4}}).group_size == 4
    config = rl(training={"batch_size": 2, "group_size": 4}, rollout={"batches_per_step": 3})
    assert config.prompts_per_iteration == 6


def test_a_policys_own_temperature_stands_over_the_rollouts() -> None:
    config = rl(policy={"temperature": 0.8}, rollout={"policy_config": {"temperature": 0, "max_tokens": 5}})
    assert (config.temperature, config.max_reply_tokens) == (0.8, 5)


def test_evaluation_seeds_that_are_trained_on_are_found() -> None:
    seeds = {"rollouts": {"seeds": {"start": 10, "count": 5}}}
    assert rl(training=seeds, evaluation={"seeds": [9, 10, 14, 15]}).evaluated_training_seeds == (10, 14)
    assert rl(training=seeds, evaluation={"seeds": [10], "split": "test"}).evaluated_training_seeds == ()
    assert rl(evaluation={"seeds": [10]}).evaluated_training_seeds == ()


def test_an_evaluation_refuses_what_only_training_has() -> None:
    for changes, key in (
        ({"rollout": {"episodes_per_batch": 8}}, "[rollout] episodes_per_batch"),
        ({"policy": {"temperature": 0.5}}, "[policy] temperature"),
        ({"policy": {"seeded": False}}, "[policy] seeded"),
    ):
        with pytest.raises(ConfigError, match="unknown key") as error:
            evaluation(**changes)
        assert key in error.value.message
    with pytest.raises(ConfigError, match="never asks the policy"):
        evaluation(rollout={"ops": ["env"]})


def test_an_evaluation_has_one_temperature() -> None:
    assert evaluation({"temperature": 0.7}, rollout={"policy_config": {"temperature": 0.7}})
    with pytest.raises(ConfigError, match="mean the same and differ"):
        evaluation({"temperature": 0}, rollout={"policy_config": {"temperature": 0.7}})


def test_an_sft_batch_size_says_which_keys_it_leaves_without_effect() -> None:
    config = sft(batch_size=8, per_device_batch=2, gradient_accumulation_steps=2)
    assert config.conversations_per_step == 8
    assert config.not_used == (
        "hyperparameters.per_device_batch", "hyperparameters.gradient_accumulation_steps"
    )  # fmt: skip
    assert sft(per_device_batch=2, gradient_accumulation_steps=3).not_used == ()


def test_sft_keys_of_one_meaning_must_agree() -> None:
    with pytest.raises(ConfigError, match="data and data_path mean the same and differ"):
        sft({"data": "a.jsonl", "data_path": "b.jsonl"})
    with pytest.raises(ConfigError, match="batch_size and global_batch mean the same and differ"):
        sft(batch_size=1, global_batch=2)
