"""The state of a running RL job: weights, optimiser, where it stands; started afresh or from a checkpoint."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from headrace.config.rl import RLConfig
from headrace.contracts.policy import PolicyVersion
from headrace.contracts.trajectory import Trajectory
from headrace.ids import EVAL, TRAIN
from headrace.rl.seeds import SeedSchedule
from headrace.rl.staleness import PolicyHistory
from headrace.store import metrics
from headrace.store.models import ResolvedModel, resolve_model
from headrace_trainer import saving, task_facts
from headrace_trainer.checkpoint import TrainerState, read_checkpoint, restore
from headrace_trainer.losses.select import loss_function
from headrace_trainer.losses.tokens import LossFunction
from headrace_trainer.model import load_policy, weights_hash
from headrace_trainer.optimizer import make_optimizer
from headrace_trainer.ownership import OwnedJob
from headrace_trainer.saving import Saver


@dataclass
class RLRun:
    """Everything that an iteration reads and moves."""

    job: OwnedJob
    config: RLConfig
    base: ResolvedModel
    model: Any
    optimizer: torch.optim.Optimizer
    loss: LossFunction
    reference: Any | None
    """The frozen model of the KL term; None without one."""
    saver: Saver
    seeds: SeedSchedule
    failure_reward: float | None
    folder: Path
    """Folder whose weights are the current version's."""
    version: PolicyVersion
    history: PolicyHistory
    iteration: int = 0
    step: int = 0
    seed_position: int = 0
    weights_sha256: str = ""
    unreported: dict[str, float] = field(default_factory=dict)
    """Metrics of the restored iteration, when the kill came before they were written."""
    told_overridden: set[str] = field(default_factory=set)
    """Sampling keys of the agent whose replacement an event has told of."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Time of the present iteration by stage."""

    @classmethod
    def start_or_resume(cls, job: OwnedJob) -> RLRun:
        """Load the newest whole checkpoint of the job, else its base model."""
        config, context = RLConfig.model_validate(job.row.config), job.context
        with context.store.read() as session:
            base = resolve_model(session, job.org_id, config.model.start, context.settings)
        seeds, failure_reward = _ask_task_app(job, config)
        training = config.training
        loss = loss_function(training, context.settings.plugin_packages)
        found = saving.newest_whole(job)
        folder = found[1] if found else Path(base.path)
        model = load_policy(folder, dtype=context.topology.dtype, device=context.topology.device)
        optimizer = make_optimizer(
            model,
            learning_rate=training.learning_rate,
            weight_decay=training.weight_decay,
            betas=(training.adam_beta1, training.adam_beta2),
        )
        run = cls(
            job=job,
            config=config,
            base=base,
            model=model,
            optimizer=optimizer,
            loss=loss,
            reference=_reference(Path(base.path), job) if training.kl_coef else None,
            saver=Saver(job, training.checkpoint_every, config.iterations),
            seeds=SeedSchedule(seeds, training.rollouts.seed_order, training.seed),
            failure_reward=failure_reward,
            folder=folder,
            version=PolicyVersion(timeline=job.timeline, n=0),
            # Without a checkpoint every earlier timeline served the base, too.
            history=PolicyHistory(tuple((timeline, 0, 0) for timeline in range(1, job.timeline + 1))),
            weights_sha256=weights_hash(model),
        )
        if found:
            run._take_up(read_checkpoint(folder))
        saving.undo_after(job, run.saver, run.iteration)
        with context.store.read() as session:
            if found and not metrics.has_step(session, job.job_id, run.iteration):
                run.unreported = dict(found[0].metrics)
        return run

    def _take_up(self, state: TrainerState) -> None:
        restore(self.folder, self.model, self.optimizer)
        self.iteration, self.step, self.seed_position = state.iteration, state.step, state.seed_position
        self.version = PolicyVersion(timeline=self.job.timeline, n=state.version.n)
        self.history = state.history
        # Owners in between, killed before a checkpoint of theirs, served these very weights first.
        for timeline in range(state.version.timeline + 1, self.job.timeline + 1):
            self.history = self.history.append(PolicyVersion(timeline=timeline, n=state.version.n))

    def can_use(self, trajectory: Trajectory) -> bool:
        """Whether a trajectory accepted before this timeline may still be trained on, at staleness 0."""
        versions = [span.version for call in trajectory.calls for span in call.version_spans]
        awaited = {(TRAIN, self.iteration + 1)}
        if self.unreported:
            awaited.add((EVAL, self.iteration))
        return (trajectory.purpose, trajectory.iteration) in awaited and all(
            self.history.contains(version) and self.history.staleness(version, self.version) == 0
            for version in versions
        )

    def state(self) -> TrainerState:
        return TrainerState(
            version=self.version,
            iteration=self.iteration,
            step=self.step,
            seed_position=self.seed_position,
            history=self.history,
        )

    def advance(self, n_optimizer_steps: int, n_groups: int) -> str | None:
        """Move on to the next iteration; with steps taken, to the next version.

        Returns what is wrong when steps were taken and no weight changed.
        """
        self.iteration += 1
        self.seed_position += n_groups
        if not n_optimizer_steps:
            return None
        self.step += n_optimizer_steps
        self.version = PolicyVersion(timeline=self.job.timeline, n=self.version.n + 1)
        self.history = self.history.append(self.version)
        before, self.weights_sha256 = self.weights_sha256, weights_hash(self.model)
        if before == self.weights_sha256:
            return f"{n_optimizer_steps} optimiser steps were taken but no weight changed"
        return None

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Add the block's time to the iteration's `time.<stage>_s`."""
        began = time.monotonic()
        yield
        name = f"time.{stage}_s"
        self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - began


def _reference(folder: Path, job: OwnedJob) -> Any:
    """The model that the job started from, frozen."""
    topology = job.context.topology
    return load_policy(folder, dtype=topology.dtype, device=topology.device).requires_grad_(False)


def _ask_task_app(job: OwnedJob, config: RLConfig) -> tuple[tuple[int, ...], float | None]:
    """The training seeds and the return of a broken episode: the config's, else the task app's own."""
    facts = task_facts.ask_for(job, config.services.task_url)
    rollouts = config.training.rollouts
    lowest = facts.reward_range[0] if facts.reward_range else None
    failure_reward = rollouts.failure_reward if rollouts.failure_reward is not None else lowest
    seeds = task_facts.training_seeds(config.training_seeds, facts, rollouts.split)
    task_facts.check_suitable(facts, rollouts.split, seeds, "[training.rollouts] seeds and split")
    if config.evaluation is not None and config.evaluation.every_n_iters:
        measured = config.evaluation
        task_facts.check_suitable(
            facts,
            measured.split or rollouts.split,
            measured.seeds[: measured.instances],
            "[evaluation] seeds and split",
        )
    return seeds, failure_reward
