"""The two tables of an RL config that say which episodes are played: `[rollout]` and `[training.rollouts]`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from headrace.config.base import Section
from headrace.config.sections import MAX_TURNS, Episode, Seed


class Rollout(Episode):
    """`[rollout]`: the episode as the task app plays it, and how many make a batch."""

    max_concurrent_rollouts: int | None = Field(default=None, ge=1)
    """Rollouts of this job in flight at once."""
    episodes_per_batch: int | None = Field(default=None, ge=1)
    """Rollouts per iteration; must equal prompts times rollouts per prompt."""
    batches_per_step: int = Field(default=1, ge=1)
    """Batches whose gradients make one optimiser step."""


class SeedRange(Section):
    start: Seed = 0
    count: int = Field(ge=1, le=10_000_000)


def _only_trace(record: Any) -> Any:
    if isinstance(record, dict) and (others := record.keys() - {"trace"}):
        raise ValueError(f"{', '.join(sorted(others))} has no effect; only `trace` acts")
    return record


class Rollouts(Section):
    """`[training.rollouts]`: which tasks are played, how often, and what a failure means."""

    prompts_per_iteration: int | None = Field(default=None, ge=1)
    """Tasks (groups) per iteration."""
    rollouts_per_prompt: int | None = Field(default=None, ge=2)
    """Members of a group."""
    max_concurrent: int | None = Field(default=None, ge=1)
    seeds: tuple[Seed, ...] | SeedRange | None = None
    """Training seeds: a list, or `{start, count}`; absent means the task app's own range."""
    split: str | None = None
    """Dataset split passed to the task app in `env.config`."""
    seed_order: Literal["shuffle", "sequential"] = "shuffle"
    """Order within an epoch; seeds are drawn without replacement."""
    max_turns: int | None = Field(default=None, ge=1, le=MAX_TURNS)
    ops: tuple[str, ...] = ()
    deadline_s: float = Field(default=600.0, gt=0)
    """Whole time of one attempt at one rollout."""
    max_attempts: int = Field(default=3, ge=1)
    """Attempts at one rollout before its group is replaced by a fresh seed."""
    failure_reward: float | None = Field(default=None, allow_inf_nan=False)
    """Return of an episode that the policy broke; absent means the task app's declared minimum."""
    min_group_members: int | None = Field(default=None, ge=2)
    """Scored members that a group needs; absent means all of them."""
    record: Annotated[dict[str, bool], BeforeValidator(_only_trace)] = {}
    """`trace = false` leaves messages and observations out of the stored traces."""
