"""What a restart finds in SQL and on disk, and makes good."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlmodel import select
from tests.fakes.trainer import JOB, TrainerWorld, planned, rollout_id, trajectory

from headrace.contracts.job import JobStatus
from headrace.contracts.policy import PolicyVersion
from headrace.errors import StaleTimeline
from headrace.rl.staleness import PolicyHistory
from headrace.store import jobs, plan, progress
from headrace.store.tables import Checkpoint, LedgerEntry, Metric
from headrace_trainer import accounting, claim, rl_loop, saving
from headrace_trainer.checkpoint import TrainerState
from headrace_trainer.ownership import OwnedJob
from headrace_trainer.saving import Saver

pytestmark = pytest.mark.integration


@pytest.fixture
def world(tmp_path: Path, store, valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> TrainerWorld:
    def write_folder(final: Path, *_: Any) -> None:
        final.mkdir(parents=True)
        (final / "model.safetensors").write_bytes(b"weights")

    monkeypatch.setattr(saving, "write_checkpoint", write_folder)
    return TrainerWorld(tmp_path, store, valkey_url)


def plan_group(job: OwnedJob, group: int) -> None:
    job.write(lambda session: plan.save(session, job.row, job.timeline, "train", 1, planned(group)))


def save(job: OwnedJob, position: int = 1) -> Path:
    version = PolicyVersion(timeline=job.timeline, n=position)
    state = TrainerState(version, position, position, position, PolicyHistory.start(version))
    return Saver(job, keep_every=1, total=9).save(position, None, Path(), None, state, {})


def test_rollouts_that_a_restart_does_not_plan_again_are_closed_with_the_checkpoint(world):
    first = world.claim()
    plan_group(first, 0)
    plan_group(first, 1)  # replaced group 0, before the kill
    second = world.claim()
    plan_group(second, 0)
    save(second)
    rows = world.rollouts()
    assert rows[rollout_id(1, 0)].status == "cancelled"
    assert rows[rollout_id(0, 0)].status == "planned"  # its outcome comes from the recorder
    with world.store.read() as session:
        reasons = {e.rollout_id: e.not_trained_reason for e in session.exec(select(LedgerEntry)).all()}
    assert reasons[rollout_id(1, 0)] == "undone by a restart, not planned again"


def test_a_resumed_run_plans_anew_what_the_failed_one_had_closed_and_the_ledger_adds_up(world):
    first = world.claim()
    plan_group(first, 0)
    plan_group(first, 1)
    claim._end(first, JobStatus.FAILED, "the disk is full")
    with world.store.read() as session:
        _, summary = progress.ledger(session, JOB)
    assert (summary.planned, summary.not_trained, summary.is_complete) == (
        4, {"the disk is full": 4}, True
    )  # fmt: skip
    with world.store.write() as session:
        jobs.requeue(session, JOB)
    second = world.claim()
    assert second.timeline == 2
    saver = Saver(second, keep_every=1, total=9)
    saving.undo_after(second, saver, 0)
    plan_group(second, 0)
    assert world.rollouts()[rollout_id(0, 0)].status == "planned"
    for member in range(2):
        saver.pending.append(
            accounting.ledger_entry(
                trajectory(0, member, timeline=2), timeline=2, step=1, advantage=1.0, n_trainable_tokens=3,
                not_trained_reason=None,
            )
        )  # fmt: skip
    version = PolicyVersion(timeline=2, n=1)
    saver.save(1, None, Path(), None, TrainerState(version, 1, 1, 1, PolicyHistory.start(version)), {})
    with world.store.read() as session:
        _, summary = progress.ledger(session, JOB)
    assert (summary.planned, summary.trained, summary.is_complete) == (4, 2, True)
    assert summary.not_trained == {"the disk is full": 2}


def test_an_owner_that_was_replaced_while_it_saved_leaves_no_folder(world):
    first = world.claim()
    world.claim()
    with pytest.raises(StaleTimeline):
        save(first)
    assert list(Saver(first, 1, 9).folder.iterdir()) == []
    with world.store.read() as session:
        assert session.exec(select(Checkpoint)).all() == []


def test_a_job_killed_between_its_last_report_and_its_end_needs_neither_engine_nor_rollouts(
    world, monkeypatch
):
    job = world.claim()
    run = SimpleNamespace(
        job=job, iteration=5, config=SimpleNamespace(iterations=5), unreported={}, folder=Path("/last"),
        base=SimpleNamespace(base_name="base"), step=5, saver=Saver(job, 1, 5),
    )  # fmt: skip
    monkeypatch.setattr(rl_loop.RLRun, "start_or_resume", lambda _: run)
    no_slot: Any = None
    rl_loop.run_rl(job, no_slot)
    row = world.row()
    assert (row.status, row.model_id) == ("succeeded", f"ft:base:{JOB}")


def test_an_evaluation_that_a_kill_prevented_is_played_and_reported_with_its_iteration(world, monkeypatch):
    job = world.claim()
    run: Any = SimpleNamespace(
        job=job, iteration=2, config=SimpleNamespace(iterations=5), step=2, version="1.2", weights_sha256="",
        unreported={"reward.mean": 0.5, "train.trainable_tokens": 10.0}, seconds={},
    )  # fmt: skip
    monkeypatch.setattr(rl_loop, "_evaluate_when_due", lambda *_: {"eval.n": 4.0})
    nothing: Any = None
    rl_loop._complete_restored(run, nothing, nothing)
    assert run.unreported == {}
    with world.store.read() as session:
        points = {point.name: (point.step, point.value) for point in session.exec(select(Metric)).all()}
    assert points == {"reward.mean": (2, 0.5), "train.trainable_tokens": (2, 10.0), "eval.n": (2, 4.0)}
    rl_loop._complete_restored(run, nothing, nothing)
