"""The two tables of an RL config that say which episodes are played: `[rollout]` and `[training.rollouts]`."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from headrace.config.base import Section, Unused
from headrace.config.sections import MAX_TURNS, Episode, Seed


class Rollout(Episode):
    """`[rollout]`: the episode as the task app plays it, and how many make a batch."""

    max_concurrent_rollouts: int | None = Field(default=None, ge=1)
    """Rollouts of this job in flight at once."""
    episodes_per_batch: int | None = Field(default=None, ge=1)
    """Rollouts per iteration, as prompts x rollouts per prompt; where no key says how many prompts, it does."""
    batches_per_step: int = Field(default=1, ge=1)
    """Batches whose gradients make one optimiser step."""
    use_vision: Unused = None
    max_images_per_step: Unused = None
    image_only_mode: Unused = None


MAX_SEEDS = 10_000_000


class SeedRange(Section):
    """So many seeds from a first one on."""

    start: Seed = 0
    count: int = Field(ge=1, le=MAX_SEEDS)

    @model_validator(mode="after")
    def _is_within_64_bits(self) -> Self:
        if self.start + self.count > 2**63:
            raise ValueError(f"start + count = {self.start + self.count} is beyond 64 bits; start lower")
        return self


class Record(Section):
    """`[training.rollouts.record]`: what is kept of a rollout."""

    trace: bool = True
    """Off leaves messages and observations out of the stored traces."""
    format: Literal["compact"] = "compact"
    """The form in which a task app is asked for its trace; all versions of task apps know this one."""
    logprobs: Literal[False] = False
    """Task apps have none; the gateway captures those of every sampled token."""


class Rollouts(Section):
    """`[training.rollouts]`: which tasks are played, how often, and what a failure means."""

    prompts_per_iteration: int | None = Field(default=None, ge=1)
    """Tasks (groups) per iteration."""
    rollouts_per_prompt: int | None = Field(default=None, ge=2)
    """Members of a group."""
    max_concurrent: int | None = Field(default=None, ge=1)
    """Rollouts of this job in flight at once; same as `[rollout] max_concurrent_rollouts`; absent means 64."""
    seeds: tuple[Seed, ...] | SeedRange | None = None
    """Training seeds: a list, or `{start, count}`; absent means those of `[data]`, else the task app's range."""
    split: str | None = None
    """Dataset split passed to the task app in `env.config`; absent means `[data] split`, else the app's own."""
    seed_order: Literal["shuffle", "sequential"] = "shuffle"
    """Order within an epoch; seeds are drawn without replacement."""
    max_turns: int | None = Field(default=None, ge=1, le=MAX_TURNS)
    """Same as `[rollout] max_turns`."""
    ops: tuple[str, ...] = ()
    """Same as `[rollout] ops`."""
    deadline_s: float = Field(default=600.0, gt=0)
    """Whole time of one attempt at one rollout."""
    max_attempts: int = Field(default=3, ge=1)
    """Attempts at one rollout before its group is replaced by a fresh seed."""
    failure_reward: float | None = Field(default=None, allow_inf_nan=False)
    """Return of an episode that the policy broke; absent means the task app's declared minimum."""
    min_group_members: int | None = Field(default=None, ge=2)
    """Scored members that a group needs; absent means all of them."""
    record: Record = Record()
    reference: None = None
    """Episodes of the reference policy; none are played."""
