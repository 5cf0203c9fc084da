"""The config of an evaluation job: a model over fixed seeds, against a baseline."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from headrace.config.base import Section
from headrace.config.sections import (
    AGENT_OPS,
    Address,
    Backend,
    Episode,
    FreeTable,
    Model,
    Reply,
    Seed,
    Tags,
    cycled_ops,
)


class EvaluationJob(Section):
    """`[evaluation_job]`."""

    task_url: Address
    """Base URL of the task app."""
    seeds: tuple[Seed, ...] = Field(min_length=1)
    samples: int = Field(default=1, ge=1)
    """Episodes per seed."""
    temperature: float = Field(default=1.0, ge=0)
    """0 decodes greedily."""
    baseline: str | None = None
    """An evaluation job over the same seeds; the report gives the paired difference with an interval."""
    split: str | None = None
    success_at: float = 1.0
    """An episode with at least this return counts as a success."""
    seed: int = 0
    """Seeds each sampled token, so that an episode can be replayed."""
    max_concurrent: int = Field(default=64, ge=1)
    deadline_s: float = Field(default=600.0, gt=0)
    max_attempts: int = Field(default=3, ge=1)
    failure_reward: float | None = Field(default=None, allow_inf_nan=False)


class EvalConfig(Section):
    """An evaluation job."""

    type: Literal["eval"] = "eval"
    job_type: Literal["eval"] | None = None
    model: Model
    evaluation_job: EvaluationJob
    backend: Backend = Backend()
    rollout: Episode = Episode()
    policy: Reply = Reply()
    tags: Tags = {}
    data: FreeTable = {}

    @model_validator(mode="after")
    def _keys_agree(self) -> Self:
        if not any(op in AGENT_OPS for op in self.ops):
            raise ValueError(f'ops = {list(self.ops)} never asks the policy; add "agent"')
        asked = self.rollout.policy_config.get("temperature")
        if asked not in (None, self.evaluation_job.temperature):
            raise ValueError(
                f"[rollout.policy_config] temperature = {asked} and [evaluation_job] temperature = "
                f"{self.evaluation_job.temperature:g} mean the same and differ; keep the second"
            )
        return self

    @property
    def max_turns(self) -> int:
        return self.rollout.max_turns or 1

    @property
    def ops(self) -> tuple[str, ...]:
        return cycled_ops(self.rollout.ops, self.max_turns)
