"""A tiny random Qwen3, and batches that look as if it had sampled them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.fakes.tiny_model import make_tiny_model

from headrace_trainer.batch import Row, TrainingBatch
from headrace_trainer.logprobs import sampled_logprobs
from headrace_trainer.model import load_policy

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("model") / "tiny", seed=0)


@pytest.fixture
def fresh_model(model_folder: Path) -> Callable[[], Any]:
    """Loads the same weights anew at each call."""
    return lambda: load_policy(model_folder)


@pytest.fixture
def rows() -> list[Row]:
    return make_rows()


def make_rows(n_rollouts: int = 6, seed: int = 0, temperature: float = 1.0) -> list[Row]:
    """Rows of 5 to 24 tokens with two trained stretches; the first rollout has a second row."""
    draw = random.Random(seed)
    made = []
    for index in range(n_rollouts + 1):
        rollout = max(0, index - 1)
        n_prompt, n_tool = draw.randint(2, 6), draw.randint(1, 4)
        n_first, n_second = draw.randint(1, 7), draw.randint(1, 7)
        mask = [0] * n_prompt + [1] * n_first + [0] * n_tool + [1] * n_second
        made.append(
            Row(
                source=f"rollout r{rollout}",
                unit=f"r{rollout}",
                token_ids=[draw.randrange(278) for _ in mask],
                mask=mask,
                behaviour_logprobs=[0.0] * len(mask),
                is_own_version=[True] * len(mask),
                temperature=temperature,
                advantage=draw.choice([-1.5, -0.5, 0.75, 2.0]),
            )
        )
    return made


def batch_of(rows: list[Row], normalization: Any = "token", max_model_len: int = 1024) -> TrainingBatch:
    return TrainingBatch.of_rows(rows, normalization=normalization, max_model_len=max_model_len)


def with_engine_logprobs(model: Any, rows: list[Row]) -> list[Row]:
    """The rows as if `model` had sampled them."""
    made = []
    for row in rows:
        (alone,) = batch_of([row]).microbatches(1)
        with torch.no_grad():
            values = iter(sampled_logprobs(model, alone)[0].tolist())
        made.append(replace(row, behaviour_logprobs=[next(values) if bit else 0.0 for bit in row.mask]))
    return made


def state_of(model: Any) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def is_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
