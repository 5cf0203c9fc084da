"""The config of an RL job (`headrace train --config rl.toml`)."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import ConfigDict, Field, model_validator

from headrace.config import rl_rules
from headrace.config.base import Section, Unused
from headrace.config.ops import cycled_ops
from headrace.config.rollouts import MAX_SEEDS, Rollout, SeedRange
from headrace.config.sections import (
    Backend,
    Compute,
    Evaluation,
    Model,
    Seed,
    Services,
    Tags,
    max_tokens_asked,
)
from headrace.config.training import Algorithm, Policy, Training

__all__ = ["Algorithm", "Data", "Policy", "RLConfig", "SeedRange", "Training"]

DEFAULT_GROUP_SIZE = 8
DEFAULT_PROMPTS = 8


class Data(Section):
    """`[data]`: defaults for seeds and splits; its other keys are yours, and jobs are found by them."""

    model_config = ConfigDict(extra="allow")

    split: str | None = None
    """The default of `[training.rollouts] split`."""
    seed_start: Seed | None = None
    """First training seed, where `[training.rollouts] seeds` is absent."""
    episodes_per_iteration: int | None = Field(default=None, ge=1, le=MAX_SEEDS)
    """In rollouts: the training seeds are so many / group_size, from `seed_start` (0) on."""
    evaluation_split: str | None = None
    """The default of `[evaluation] split`."""
    evaluation_episodes: int | None = Field(default=None, ge=1, le=MAX_SEEDS)
    """Where `[evaluation] seeds` is absent: so many seeds from `seed_start` (0) on, played after the last
    iteration unless `[evaluation] every_n_iters` says when."""


class RLConfig(Section):
    """An RL job."""

    job_type: Literal["rl"] | None = None
    """Same as `type`."""
    type: Literal["rl"] | None = None
    """Says that this is an RL job; `[algorithm]` or `[services]` say so, too."""
    algorithm: Algorithm = Algorithm()
    services: Services
    model: Model
    backend: Backend = Backend()
    compute: Compute | None = None
    rollout: Rollout = Rollout()
    training: Training = Training()
    policy: Policy = Policy()
    evaluation: Evaluation | None = None
    tags: Tags = {}
    """Your own names and plain values, by which jobs are found again."""
    data: Data = Data()
    topology: Unused = None
    vllm: Unused = None
    reference: Unused = None
    lora: Unused = None
    judge: Unused = None
    rubric: Unused = None
    smoke: Unused = None

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        for rule in rl_rules.RULES:
            rule(self)
        return self

    # Derived values: the one place where keys of one meaning are resolved.

    @property
    def iterations(self) -> int:
        return self.training.num_epochs * self.training.iterations_per_epoch

    @property
    def group_size(self) -> int:
        return self.training.group_size or self.training.rollouts.rollouts_per_prompt or DEFAULT_GROUP_SIZE

    @property
    def prompts_per_iteration(self) -> int:
        if self.training.batch_size is not None:
            return self.training.batch_size * self.rollout.batches_per_step
        explicit = self.training.rollouts.prompts_per_iteration
        if explicit is None and self.rollout.episodes_per_batch is not None:
            return max(1, self.rollout.episodes_per_batch // self.group_size)
        return explicit or DEFAULT_PROMPTS

    @property
    def max_turns(self) -> int:
        return self.rollout.max_turns or self.training.rollouts.max_turns or self.training.max_turns or 1

    @property
    def max_concurrent(self) -> int:
        return self.rollout.max_concurrent_rollouts or self.training.rollouts.max_concurrent or 64

    @property
    def min_group_members(self) -> int:
        return self.training.rollouts.min_group_members or self.group_size

    @property
    def ops(self) -> tuple[str, ...]:
        """The episode's plan: `max_turns` agent ops, a shorter given plan cycled up to it."""
        return cycled_ops(self.rollout.ops or self.training.rollouts.ops, self.max_turns)

    @property
    def training_seeds(self) -> tuple[int, ...] | None:
        """Seeds to train on; None leaves it to the task app."""
        seeds = self.training.rollouts.seeds
        if isinstance(seeds, SeedRange):
            return tuple(range(seeds.start, seeds.start + seeds.count))
        return seeds

    @property
    def evaluated_training_seeds(self) -> tuple[int, ...]:
        """Seeds of `[evaluation]` that occur among the config's training seeds, where both play one split."""
        if self.evaluation is None or self.evaluation.split not in (None, self.split):
            return ()
        seeds = self.training.rollouts.seeds or ()
        trained = (
            range(seeds.start, seeds.start + seeds.count) if isinstance(seeds, SeedRange) else set(seeds)
        )
        return tuple(seed for seed in self.evaluation.seeds if seed in trained)

    @property
    def temperature(self) -> float:
        if self.policy.temperature is not None:
            return self.policy.temperature
        asked = self.rollout.policy_config.get("temperature")
        return float(asked) if asked else 1.0

    @property
    def max_reply_tokens(self) -> int | None:
        return max_tokens_asked(self.policy, self.rollout)

    @property
    def split(self) -> str | None:
        return self.training.rollouts.split

    @property
    def is_seeded(self) -> bool:
        return self.training.max_staleness == 0 if self.policy.seeded == "auto" else self.policy.seeded
