"""When a checkpoint is written, and the one transaction that makes it count.

The folder (with its manifest) comes first, then one transaction writes the checkpoint's row, the
ledger of every rollout since the last one, and the job's progress. Only then are stream entries
acknowledged, so a kill anywhere in between repeats work and loses none.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import update
from sqlmodel import Session, col

from headrace.artifacts.files import read_manifest, seal_folder
from headrace.contracts.policy import PolicyVersion
from headrace.errors import StaleTimeline
from headrace.ids import new_id
from headrace.store import checkpoints, ledger, metrics, plan
from headrace.store.tables import Checkpoint, Job, LedgerEntry
from headrace_trainer.checkpoint import TrainerState, drop_trainer_state, write_checkpoint
from headrace_trainer.model import save_policy
from headrace_trainer.ownership import OwnedJob

RESUMABLE = 2
"""Newest checkpoints that keep the optimiser's state; the engine may still be reading the last but one."""
CHEAP_SHARE = 0.1
"""A checkpoint that costs less than this share of an iteration is written in each."""


@dataclass
class Saver:
    """Writes one job's checkpoints and forgets those that are no longer needed."""

    job: OwnedJob
    keep_every: int
    total: int
    """The last iteration (RL) or step (SFT): its checkpoint is always kept."""
    pending: list[LedgerEntry] = field(default_factory=list)
    """Ledger rows that the next checkpoint will write."""
    cost_s: float = 0.0

    @property
    def folder(self) -> Path:
        return self.job.context.artifacts.path(f"{self.job.org_id}/{self.job.job_id}/checkpoints")

    def is_due(self, position: int, work_s: float) -> bool:
        """Whether to write one at iteration (or step) `position`, of which the work took `work_s`."""
        if position == self.total or position % self.keep_every == 0:
            return True
        return self.cost_s < CHEAP_SHARE * work_s

    def save(
        self,
        position: int,
        model: Any,
        source: Path,
        optimizer: Any,
        state: TrainerState,
        values: dict[str, float],
    ) -> Path:
        """Make the state durable; returns the folder. Raises StaleTimeline when another owner has come."""
        began = time.monotonic()
        self.job.check()
        final = self.folder / f"t{self.job.timeline}.i{position}"
        write_checkpoint(final, model, source, optimizer, state)
        is_kept = position == self.total or position % self.keep_every == 0
        row = Checkpoint(
            checkpoint_id=new_id("ckpt"),
            org_id=self.job.org_id,
            job_id=self.job.job_id,
            timeline=state.version.timeline,
            version=state.version.n,
            iteration=position,
            step=state.step,
            path=str(final.relative_to(self.job.context.artifacts.root.resolve())),
            is_kept=is_kept,
            history=state.history.to_json(),
            metrics=values,
        )
        try:
            self.job.write(lambda session: self._commit(session, row))
        except StaleTimeline:
            shutil.rmtree(final, ignore_errors=True)  # no row will ever name it
            raise
        self.pending = []
        self._forget_old()
        self.cost_s = time.monotonic() - began
        return final

    def save_weights(self, model: Any, source: Path, version: PolicyVersion) -> Path:
        """Write only what the engine needs; the two newest such folders stay."""
        weights = self.folder.parent / "weights"
        staging, final = weights / ".staging", weights / str(version)
        shutil.rmtree(staging, ignore_errors=True)
        save_policy(model, source, staging)
        seal_folder(staging, final, {"version": str(version)})
        older = sorted(weights.iterdir(), key=lambda folder: folder.stat().st_mtime)[:-RESUMABLE]
        for folder in older:
            shutil.rmtree(folder, ignore_errors=True)
        return final

    def drop_weights(self) -> None:
        """Remove what `save_weights` left; a finished job's engine serves its last checkpoint."""
        shutil.rmtree(self.folder.parent / "weights", ignore_errors=True)

    def _commit(self, session: Session, row: Checkpoint) -> None:
        session.add(row)
        ledger.add(session, self.pending)
        undone = "undone by a restart, not planned again"
        plan.cancel_undone(session, row.job_id, row.iteration, self.job.timeline, undone)
        ledger.close_iterations(session, row.job_id, row.iteration, undone)
        session.execute(update(Job).where(col(Job.job_id) == row.job_id).values(iteration=row.iteration))
        if row.is_kept:
            self.job.add_event(
                session,
                f"{self.job.prefix}.checkpoint.saved",
                f"checkpoint at {row.iteration} of {self.total}",
                checkpoint_id=row.checkpoint_id,
                iteration=row.iteration,
            )

    def _forget_old(self) -> None:
        """Drop what is superseded: rows first, so that no row ever names a folder that is gone."""
        gone: list[str] = []
        stripped: list[str] = []

        def forget(session: Session) -> None:
            for row in checkpoints.newest_resumable(session, self.job.job_id)[RESUMABLE:]:
                if row.is_kept:
                    row.has_trainer_state = False
                    stripped.append(row.path)
                else:
                    session.delete(row)
                    gone.append(row.path)

        self.job.write(forget)
        for path in stripped:
            drop_trainer_state(self.job.context.artifacts.path(path))
        for path in gone:
            shutil.rmtree(self.job.context.artifacts.path(path), ignore_errors=True)


def newest_whole(job: OwnedJob) -> tuple[Checkpoint, Path] | None:
    """The newest checkpoint whose files are all there and unchanged, or None to start from the base."""
    with job.context.store.read() as session:
        rows = checkpoints.newest_resumable(session, job.job_id)
    for row in rows:
        folder = job.context.artifacts.path(row.path)
        if read_manifest(folder) is not None:
            return row, folder
        job.event(
            f"{job.prefix}.checkpoint.damaged",
            f"checkpoint {row.checkpoint_id} does not match its manifest and is passed over",
            level="warning",
        )
    return None


def undo_after(job: OwnedJob, saver: Saver, position: int) -> None:
    """Forget what lies behind the restored position: rows of a damaged checkpoint, folders without a row."""

    def undo(session: Session) -> None:
        checkpoints.undo_after(session, job.job_id, position)
        ledger.undo_after(session, job.job_id, position)
        metrics.forget_after(session, job.job_id, position)
        session.execute(update(Job).where(col(Job.job_id) == job.job_id).values(iteration=position))

    job.write(undo)
    with job.context.store.read() as session:
        known = {job.context.artifacts.path(row.path) for row in checkpoints.of_job(session, job.job_id)}
    if saver.folder.is_dir():
        for folder in saver.folder.iterdir():
            if folder.resolve() not in known:
                shutil.rmtree(folder, ignore_errors=True)
