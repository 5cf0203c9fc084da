"""The config of an evaluation job: a model over fixed seeds, against a baseline."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from headrace.config.base import Section
from headrace.config.ops import AGENT_OPS, cycled_ops, n_agent_ops
from headrace.config.sections import (
    Address,
    Backend,
    Compute,
    Episode,
    FreeTable,
    Model,
    Reply,
    Seed,
    Tags,
    refuse_reply_without_prompt,
)


class EvaluationJob(Section):
    """`[evaluation_job]`."""

    task_url: Address
    """Base URL of the task app."""
    seeds: tuple[Seed, ...] = Field(min_length=1)
    """Task seeds to play."""
    samples: int = Field(default=1, ge=1)
    """Episodes per seed."""
    temperature: float = Field(default=1.0, ge=0)
    """0 decodes greedily."""
    baseline: str | None = None
    """An evaluation job over the same seeds; the report gives the paired difference with an interval."""
    split: str | None = None
    """Dataset split passed to the task app in `env.config`; absent means the app's own."""
    success_at: float = 1.0
    """An episode with at least this return counts as a success."""
    seed: Seed = 0
    """Seeds each sampled token, so that an episode can be replayed."""
    max_concurrent: int = Field(default=64, ge=1)
    """Rollouts of this job in flight at once."""
    deadline_s: float = Field(default=600.0, gt=0)
    """Whole time of one attempt at one rollout."""
    max_attempts: int = Field(default=3, ge=1)
    """Attempts at one rollout before it is left out of the report."""
    failure_reward: float | None = Field(default=None, allow_inf_nan=False)
    """Return of an episode that the policy broke; absent means the task app's declared minimum."""


class EvalConfig(Section):
    """An evaluation job."""

    type: Literal["eval"] = "eval"
    """Says that this is an evaluation job; `[evaluation_job]` says so, too."""
    job_type: Literal["eval"] | None = None
    """Same as `type`."""
    model: Model
    evaluation_job: EvaluationJob
    backend: Backend = Backend()
    compute: Compute | None = None
    rollout: Episode = Episode()
    policy: Reply = Reply()
    tags: Tags = {}
    """Your own names and plain values, by which jobs are found again."""
    data: FreeTable = {}
    """Your own values, by which jobs are found again."""

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        if not any(op in AGENT_OPS for op in self.ops):
            raise ValueError(f'ops = {list(self.ops)} never asks the policy; add "agent"')
        given, turns = n_agent_ops(self.ops), self.rollout.max_turns
        if turns is not None and given > turns:
            raise ValueError(
                f"ops asks the policy {given} times in an episode of max_turns = {turns}; shorten ops or raise "
                "max_turns"
            )
        refuse_reply_without_prompt(self.policy, self.rollout)
        return self

    @property
    def max_turns(self) -> int:
        return self.rollout.max_turns or 1

    @property
    def ops(self) -> tuple[str, ...]:
        return cycled_ops(self.rollout.ops, self.max_turns)
