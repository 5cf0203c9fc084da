"""Sections that several job types share."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from headrace.config.base import Section


class Model(Section):
    """`[model]`: where training starts."""

    base: str | None = None
    """A base model: a local folder, a registered name, a hub id in the local cache, or an alias."""
    source: str | None = None
    """A model id that a job ended with (`ft:<base>:<job>`), or a checkpoint folder."""
    trainer_mode: Literal["full", "lora", "qlora"] = "full"
    label: str | None = None
    """A name for people; no effect on training."""

    @model_validator(mode="after")
    def _exactly_one_start(self) -> Self:
        if (self.base is None) == (self.source is None):
            raise ValueError("[model] needs exactly one of `base` and `source`")
        return self

    @property
    def start(self) -> str:
        start = self.base or self.source
        assert start is not None
        return start


class Backend(Section):
    """`[backend]`: where the job runs."""

    compute_pool: str | None = None
    """Name of a pool; absent means the server's default pool."""
    topology_id: str | None = None
    """A way to use the pool, as named in `pools.toml`."""


class Compute(Section):
    """`[compute]`: what hosted services ask for; kept for other clients, a pool decides here."""

    gpu_type: str | None = None
    gpu_count: int | None = None
    nodes: int | None = None


class Services(Section):
    """`[services]`: addresses of what the job needs."""

    task_url: str
    """Base URL of the task app as the workers reach it."""
    policy_url: str | None = None
    """Base URL of the policy gateway as this task app reaches it; overrides HEADRACE_POLICY_PUBLIC_URL."""


class Evaluation(Section):
    """`[evaluation]`: how the policy is measured while it trains."""

    every_n_iters: int = Field(default=0, ge=0)
    """Evaluate after each so many iterations; 0 means never."""
    seeds: tuple[int, ...] = ()
    """Task seeds to play; they should not occur among the training seeds."""
    samples: int = Field(default=1, ge=1)
    """Episodes per seed."""
    temperature: float = Field(default=1.0, ge=0)
    """0 decodes greedily."""
    split: str | None = None
    """Split passed to the task app in `env.config`; absent means the rollouts' split."""
    instances: int | None = Field(default=None, ge=1)
    """Use only the first so many seeds."""


AGENT_OPS = ("agent", "policy", "model")
"""Names under which an op asks the policy."""


def cycled_ops(plan: tuple[str, ...], max_turns: int) -> tuple[str, ...]:
    """An episode's ops: the plan (`agent`, `env` when empty), repeated until it asks the policy `max_turns` times.

    >>> cycled_ops(("agent", "env"), 2)
    ('agent', 'env', 'agent', 'env')
    """
    plan = plan or ("agent", "env")
    n_agent = sum(op in AGENT_OPS for op in plan)
    return plan * -(-max_turns // n_agent) if 0 < n_agent < max_turns else plan


FreeTable = dict[str, Any]
"""A table whose keys are the user's own."""
