"""A config's type: the algorithm first, then our own words, then keys that one type alone has."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.config.load import infer_type
from headrace.contracts.job import JobType

RL, SFT, EVAL = JobType.RL, JobType.SFT, JobType.EVAL


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"algorithm": {"method": "policy_gradient"}}, RL),
        ({"algorithm": {"method": "PPO"}}, RL),
        ({"algorithm": {"method": "reinforce"}}, RL),
        ({"algorithm": {"type": "online"}}, RL),
        ({"algorithm": {"variety": "grpo"}}, RL),
        ({"algorithm": {"variety": "GSPO"}}, RL),
        ({"algorithm": {"method": "supervised_finetune"}}, SFT),
        ({"algorithm": {"method": "sft"}}, SFT),
        ({"algorithm": {"type": "offline"}}, SFT),
        ({"algorithm": {"variety": "fft"}}, SFT),
        ({"type": "rl"}, RL),
        ({"type": "SFT"}, SFT),
        ({"job_type": "rl"}, RL),
        ({"job_type": "eval"}, EVAL),
        ({"evaluation_job": {}}, EVAL),
        ({"services": {"task_url": "u"}}, RL),
        ({"services": {"environment": "e"}}, RL),
        ({"training": {"mode": "sft_offline"}}, SFT),
        ({"hyperparameters": {"train_kind": "fft"}}, SFT),
    ],
)
def test_each_word_for_a_type_is_heard(raw: dict[str, Any], expected: JobType) -> None:
    assert infer_type(raw) is expected


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"algorithm": {"method": "sft"}, "job_type": "rl"}, SFT),
        ({"algorithm": {"variety": "grpo"}, "type": "eval"}, RL),
        ({"algorithm": {"type": "online", "variety": "fft"}}, RL),
        ({"type": "eval", "services": {"task_url": "u"}}, EVAL),
        ({"services": {"task_url": "u"}, "training": {"mode": "sft"}}, RL),
    ],
)
def test_the_first_that_tells_wins(raw: dict[str, Any], expected: JobType) -> None:
    assert infer_type(raw) is expected


@pytest.mark.parametrize(
    "raw",
    [{}, {"type": []}, {"type": "tune"}, {"algorithm": 1}, {"algorithm": {"method": 3}}, {"services": [1]},
     {"training": {"mode": None}}, {"hyperparameters": {"train_kind": "peft"}}],
)  # fmt: skip
def test_nothing_that_tells_is_no_type(raw: dict[str, Any]) -> None:
    assert infer_type(raw) is None
