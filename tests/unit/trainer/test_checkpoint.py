from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.unit.trainer.conftest import batch_of, is_same, make_rows, state_of

from headrace.artifacts import files
from headrace.artifacts.files import read_manifest
from headrace.config.rl import Training
from headrace.contracts.policy import PolicyVersion
from headrace.errors import JobFailed
from headrace.rl.staleness import PolicyHistory
from headrace_trainer.checkpoint import (
    MOMENTS,
    STATE,
    TrainerState,
    drop_trainer_state,
    read_checkpoint,
    restore,
    write_checkpoint,
)
from headrace_trainer.losses.select import loss_function
from headrace_trainer.model import load_policy
from headrace_trainer.optimizer import make_optimizer
from headrace_trainer.step import rl_step

CONFIG = Training(learning_rate=2e-3, warmup_steps=5, max_logprob_mismatch=9.0)
STATE_AFTER_ONE = TrainerState(
    version=PolicyVersion(timeline=2, n=1),
    iteration=1,
    step=1,
    seed_position=17,
    history=PolicyHistory(((1, 0, 0), (2, 0, 1))),
    facts={"next_group": 3},
)


def optimizer_of(model: Any) -> torch.optim.Optimizer:
    return make_optimizer(model, learning_rate=1.0, weight_decay=0.1)


def train(model: Any, optimizer: torch.optim.Optimizer, first: int, n: int) -> None:
    for step in range(first, first + n):
        rl_step(
            model, optimizer, batch_of(make_rows(seed=step)), CONFIG, loss=loss_function(CONFIG), step=step
        )


@pytest.fixture
def checkpoint(fresh_model: Callable[[], Any], model_folder: Path, tmp_path: Path) -> Path:
    model = fresh_model()
    optimizer = optimizer_of(model)
    train(model, optimizer, 0, 1)
    write_checkpoint(tmp_path / "c1", model, model_folder, optimizer, STATE_AFTER_ONE)
    return tmp_path / "c1"


def test_three_steps_equal_one_step_a_restart_and_two_more_to_the_bit(
    fresh_model: Callable[[], Any], checkpoint: Path
) -> None:
    straight = fresh_model()
    optimizer = optimizer_of(straight)
    train(straight, optimizer, 0, 3)
    state = read_checkpoint(checkpoint)
    resumed = load_policy(checkpoint)
    resumed_optimizer = optimizer_of(resumed)
    restore(checkpoint, resumed, resumed_optimizer)
    train(resumed, resumed_optimizer, state.step, 2)
    assert is_same(state_of(straight), state_of(resumed))


def test_a_restart_without_the_moments_would_not_be_the_same(
    fresh_model: Callable[[], Any], checkpoint: Path
) -> None:
    straight = fresh_model()
    train(straight, optimizer_of(straight), 0, 3)
    forgetful = load_policy(checkpoint)
    train(forgetful, optimizer_of(forgetful), 1, 2)
    assert not is_same(state_of(straight), state_of(forgetful))


def test_a_checkpoint_returns_where_the_job_stood_and_its_random_states(
    fresh_model: Callable[[], Any], model_folder: Path, tmp_path: Path
) -> None:
    random.seed(5)
    torch.manual_seed(6)
    model = fresh_model()
    write_checkpoint(tmp_path / "c0", model, model_folder, optimizer_of(model), STATE_AFTER_ONE)
    expected = (random.random(), float(torch.rand(1)))
    random.seed(7)
    torch.manual_seed(8)
    assert read_checkpoint(tmp_path / "c0") == STATE_AFTER_ONE
    restore(tmp_path / "c0", model, optimizer_of(model))
    assert (random.random(), float(torch.rand(1))) == expected


def test_the_manifest_names_version_and_history_and_nothing_is_left_beside_it(checkpoint: Path) -> None:
    manifest = read_manifest(checkpoint)
    assert manifest is not None
    assert manifest["version"] == "2.1"
    assert manifest["history"] == [[1, 0, 0], [2, 0, 1]]
    assert [path.name for path in checkpoint.parent.iterdir()] == ["c1"]


@pytest.mark.parametrize("name", ["model.safetensors", MOMENTS, STATE, "tokenizer.json"])
def test_a_file_that_was_changed_or_lost_is_not_resumed_from(checkpoint: Path, name: str) -> None:
    whole = (checkpoint / name).read_bytes()
    (checkpoint / name).write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(JobFailed, match="incomplete or was changed"):
        read_checkpoint(checkpoint)
    (checkpoint / name).write_bytes(whole)
    read_checkpoint(checkpoint)
    (checkpoint / name).unlink()
    with pytest.raises(JobFailed, match="incomplete or was changed"):
        read_checkpoint(checkpoint)


def test_a_kill_before_the_rename_leaves_no_checkpoint_and_the_next_one_cleans_up(
    fresh_model: Callable[[], Any], model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed(*_: Any) -> None:
        raise Killed

    model = fresh_model()
    arguments = (tmp_path / "c1", model, model_folder, optimizer_of(model), STATE_AFTER_ONE)
    with monkeypatch.context() as patch:
        patch.setattr(files, "write_atomically", killed)
        with pytest.raises(Killed):
            write_checkpoint(*arguments)
    with pytest.raises(JobFailed):
        read_checkpoint(tmp_path / "c1")
    write_checkpoint(*arguments)
    assert [path.name for path in tmp_path.iterdir()] == ["c1"]
    assert read_checkpoint(tmp_path / "c1") == STATE_AFTER_ONE


def test_dropping_the_trainer_state_leaves_a_trusted_model_that_says_why_it_cannot_resume(
    checkpoint: Path,
) -> None:
    before = state_of(load_policy(checkpoint))
    for _ in range(2):
        drop_trainer_state(checkpoint)
        assert read_manifest(checkpoint) is not None
        assert not (checkpoint / MOMENTS).exists()
    assert is_same(before, state_of(load_policy(checkpoint)))
    with pytest.raises(JobFailed, match="weights only"):
        read_checkpoint(checkpoint)


def test_a_kill_while_dropping_leaves_a_trusted_folder(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", killed)
        with pytest.raises(KeyboardInterrupt):
            drop_trainer_state(checkpoint)
    assert read_manifest(checkpoint) is not None
    drop_trainer_state(checkpoint)
    assert not (checkpoint / STATE).exists()
