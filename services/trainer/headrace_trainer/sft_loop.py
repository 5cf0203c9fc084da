"""SFT, one optimiser step after the other: loss on assistant tokens only.

The tokens of a conversation are those that the policy gateway would render for it. While it
trains, the slot's engine already loads the base model if nobody uses it, so that what follows
need not wait.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import update
from sqlmodel import Session, col

from headrace.config.sft import SFTConfig
from headrace.contracts.job import JobStatus
from headrace.contracts.policy import PolicyVersion
from headrace.errors import StaleTimeline
from headrace.queue.slots import SlotClaim
from headrace.render import Renderer
from headrace.rl.staleness import PolicyHistory
from headrace.store import files, jobs, metrics
from headrace.store.models import ResolvedModel, model_id, resolve_model
from headrace.store.tables import Job
from headrace_trainer import saving
from headrace_trainer.checkpoint import TrainerState, read_checkpoint, restore
from headrace_trainer.model import load_policy, max_model_len
from headrace_trainer.optimizer import learning_rate_at, make_optimizer
from headrace_trainer.ownership import OwnedJob
from headrace_trainer.policy_link import PolicyLink
from headrace_trainer.saving import Saver
from headrace_trainer.sft_data import SftRow, load_conversations, rows_of_step, steps_per_epoch
from headrace_trainer.sft_step import sft_step, validation_loss

REPORT_EVERY_S = 1.0
"""Points of several steps are written together, so that the database sees one writer a second."""


@dataclass
class SFTRun:
    """The state of a running SFT job."""

    job: OwnedJob
    config: SFTConfig
    base: ResolvedModel
    model: Any
    optimizer: Any
    rows: list[SftRow]
    validation_rows: list[SftRow]
    total: int
    """Optimiser steps of the whole job."""
    saver: Saver
    folder: Path
    """The newest checkpoint, or the base before the first."""
    step: int = 0
    points: dict[int, dict[str, float]] = field(default_factory=dict)
    """Metrics by step, not yet written."""
    reported_at: float = 0.0

    @classmethod
    def start_or_resume(cls, job: OwnedJob) -> SFTRun:
        config, context = SFTConfig.model_validate(job.row.config), job.context
        hyper = config.hyperparameters
        with context.store.read() as session:
            base = resolve_model(session, job.org_id, config.job.model, context.settings)
        found = saving.newest_whole(job)
        folder = found[1] if found else Path(base.path)
        model = load_policy(folder, dtype=context.topology.dtype, device=context.topology.device)
        renderer, longest = Renderer.load(folder), min(hyper.sequence_length or 10**9, max_model_len(model))
        rows = load_conversations(_content(job, "training_file_id"), renderer, longest)
        validation = _content(job, "validation_file_id")
        total = hyper.n_epochs * steps_per_epoch(len(rows), config.conversations_per_step)
        total = min(total, hyper.max_steps or total)
        run = cls(
            job=job,
            config=config,
            base=base,
            model=model,
            optimizer=make_optimizer(
                model, learning_rate=hyper.learning_rate, weight_decay=hyper.weight_decay
            ),
            rows=rows,
            validation_rows=load_conversations(validation, renderer, longest) if validation else [],
            total=total,
            saver=Saver(job, hyper.checkpoint_every, total),
            folder=folder,
        )
        if found:
            restore(folder, model, run.optimizer)
            run.step = read_checkpoint(folder).step
        saving.undo_after(job, run.saver, run.step)
        return run

    def learning_rate(self, step: int) -> float:
        hyper = self.config.hyperparameters
        warmup = (
            hyper.warmup_steps if hyper.warmup_steps is not None else round(hyper.warmup_ratio * self.total)
        )
        return learning_rate_at(
            step,
            peak=hyper.learning_rate,
            warmup_steps=warmup,
            schedule=hyper.schedule,
            total_steps=self.total,
        )

    def state(self) -> TrainerState:
        version = PolicyVersion(timeline=self.job.timeline, n=self.step)
        return TrainerState(
            version=version,
            iteration=0,
            step=self.step,
            seed_position=0,
            history=PolicyHistory.start(version),
        )


def run_sft(job: OwnedJob, slot: SlotClaim) -> None:
    """Run the job to its last step."""
    run = SFTRun.start_or_resume(job)
    _warm_up_engine(run, slot)
    job.event(
        "sft.training.started",
        f"{run.total} steps of {run.config.conversations_per_step} conversations, from step {run.step}",
        n_conversations=len(run.rows),
    )
    while run.step < run.total:
        job.check()
        _one_step(run)
        if run.step % run.saver.keep_every == 0 or run.step == run.total:
            _report(run)
            run.folder = run.saver.save(run.step, run.model, run.folder, run.optimizer, run.state(), {})
        elif time.monotonic() - run.reported_at > REPORT_EVERY_S:
            _report(run)
    _finish(run)


def _one_step(run: SFTRun) -> None:
    hyper, step = run.config.hyperparameters, run.step + 1
    chosen = rows_of_step(len(run.rows), run.config.conversations_per_step, hyper.seed, step)
    learnt = sft_step(
        run.model,
        run.optimizer,
        [run.rows[index] for index in chosen],
        learning_rate=run.learning_rate(step),
        max_grad_norm=hyper.max_grad_norm,
        max_tokens=hyper.max_tokens_per_microbatch,
        between=run.job.check,
    )
    run.step = step
    run.points[step] = dict(learnt.metrics)
    if run.validation_rows and _validates_at(run, step):
        loss = validation_loss(run.model, run.validation_rows, max_tokens=hyper.max_tokens_per_microbatch)
        run.points[step]["val.loss"] = loss
        run.job.event(
            "sft.validation.summary", f"step {step}: validation loss {loss:.4f}", step=step, loss=loss
        )


def _validates_at(run: SFTRun, step: int) -> bool:
    validation = run.config.training.validation
    if validation is not None and not validation.enabled:
        return False
    per_epoch = steps_per_epoch(len(run.rows), run.config.conversations_per_step)
    every = validation.eval_steps if validation and validation.evaluation_strategy == "steps" else 0
    return step % (every or per_epoch) == 0 or step == run.total


def _report(run: SFTRun) -> None:
    if not run.points:
        return
    points, run.points, run.reported_at = run.points, {}, time.monotonic()

    def write(session: Session) -> None:
        for step, values in points.items():
            metrics.write(session, run.job.org_id, run.job.job_id, step, values, "training")
        last = max(points)
        session.execute(update(Job).where(col(Job.job_id) == run.job.job_id).values(iteration=last))
        run.job.add_event(
            session,
            "sft.progress",
            f"step {last}/{run.total}: loss {points[last]['train.loss']:.4f}",
            step=last,
            total_steps=run.total,
        )

    run.job.write(write)


def _warm_up_engine(run: SFTRun, slot: SlotClaim) -> None:
    """Have a free engine load the base model; whoever needs the engine next is not kept waiting."""
    if slot.fence:
        link = PolicyLink(run.job.context, slot, run.job.job_id, f"{run.job.job_id}.warm-up")
        with suppress(StaleTimeline):
            version = PolicyVersion(timeline=run.job.timeline, n=0)
            link.desire(Path(run.base.path), version, None, run.base.engine_args)
        link.close()
        slot.release()


def _content(job: OwnedJob, key: str) -> bytes:
    file_id = job.row.data.get(key)
    if not file_id:
        return b""
    with job.context.store.read() as session:
        stored = files.get_file(session, job.org_id, file_id)
    return job.context.artifacts.read(stored.path, stored.sha256)


def _finish(run: SFTRun) -> None:
    name = model_id(run.base.base_name, run.job.job_id)
    result = {"checkpoint": str(run.folder), "optimizer_steps": run.step}

    def write(session: Session) -> None:
        for event in ("sft.job.completed", "sft.completed"):
            run.job.add_event(session, event, f"finished as {name}", fine_tuned_model=name)
        jobs.move(
            session,
            run.job.job_id,
            JobStatus.SUCCEEDED,
            timeline=run.job.timeline,
            model_id=name,
            result=result,
            iteration=run.step,
        )

    run.job.write(write)
