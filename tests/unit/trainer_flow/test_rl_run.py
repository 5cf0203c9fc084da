"""What a resumed RL job may still use of the time before the kill."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.fakes.trainer import trajectory
from tests.fakes.trajectories import make_call

from headrace.contracts.policy import PolicyVersion, VersionSpan
from headrace.contracts.trajectory import Trajectory
from headrace.ids import EVAL
from headrace.rl.staleness import PolicyHistory
from headrace_trainer import rl_run
from headrace_trainer.checkpoint import TrainerState
from headrace_trainer.rl_run import RLRun


def resumed(
    monkeypatch: pytest.MonkeyPatch, timeline: int, saved: PolicyVersion, iteration: int = 3
) -> RLRun:
    monkeypatch.setattr(rl_run, "restore", lambda *_: None)
    nothing: Any = None
    run = RLRun(
        job=SimpleNamespace(timeline=timeline), config=nothing, base=nothing, model=nothing, optimizer=nothing,
        loss=nothing,
        reference=None,
        saver=nothing, seeds=nothing, failure_reward=None, folder=Path(), version=saved,
        history=PolicyHistory.start(saved),
    )  # fmt: skip
    history = PolicyHistory(((saved.timeline, 0, saved.n),))
    run._take_up(TrainerState(saved, iteration, 3, 12, history))
    return run


def played(timeline: int, n: int, iteration: int = 4, **changes: Any) -> Trajectory:
    span = VersionSpan(version=PolicyVersion(timeline=timeline, n=n), start=0, end=1)
    call = make_call(0, [1], [2], version_spans=(span,))
    return trajectory(0, 0, iteration=iteration, calls=(call,), **changes)


def test_a_second_kill_before_any_checkpoint_keeps_what_the_first_successor_collected(monkeypatch):
    run = resumed(monkeypatch, timeline=3, saved=PolicyVersion(timeline=1, n=3))
    assert run.version == PolicyVersion(timeline=3, n=3)
    assert run.can_use(played(1, 3))
    assert run.can_use(played(2, 3))
    # Weights that only the killed owner had: of a branch that is gone.
    assert not run.can_use(played(2, 4))
    assert not run.can_use(played(1, 2))
    assert not run.can_use(played(1, 3, iteration=3))


def test_episodes_of_an_interrupted_evaluation_are_kept_while_it_has_to_be_repeated(monkeypatch):
    run = resumed(monkeypatch, timeline=2, saved=PolicyVersion(timeline=1, n=3))
    evaluation = played(1, 3, iteration=3, purpose=EVAL)
    assert not run.can_use(evaluation)
    run.unreported = {"reward.mean": 1.0}
    assert run.can_use(evaluation)
