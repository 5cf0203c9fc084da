"""The config of an RL job (`headrace train --config rl.toml`)."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from headrace.config.base import Section, keys_present
from headrace.config.sections import (
    AGENT_OPS,
    Backend,
    Compute,
    Evaluation,
    FreeTable,
    Model,
    Services,
    cycled_ops,
)


class Algorithm(Section):
    """`[algorithm]`: the family of the job."""

    type: Literal["online"] = "online"
    method: Literal["policy_gradient", "ppo", "reinforce"] = "policy_gradient"
    variety: Literal["grpo", "gspo"] = "grpo"
    """`grpo` uses a ratio per token; `gspo` one per sequence."""


class Rollout(Section):
    """`[rollout]`: the episode as the task app plays it."""

    env_name: str | None = None
    policy_name: str | None = None
    env_config: FreeTable = {}
    """Passed to the task app as `env.config`."""
    policy_config: FreeTable = {}
    """Passed to the task app as `policy.config`; `temperature` and `max_tokens` act as defaults of `[policy]`."""
    ops: tuple[str, ...] = ()
    """One episode's plan; absent means `agent`, `env` in turn, `max_turns` times. Shorter plans are cycled."""
    max_turns: int | None = Field(default=None, ge=1)
    max_concurrent_rollouts: int | None = Field(default=None, ge=1)
    """Rollouts of this job in flight at once."""
    episodes_per_batch: int | None = Field(default=None, ge=1)
    """Rollouts per iteration; must equal prompts times rollouts per prompt."""
    batches_per_step: int = Field(default=1, ge=1)
    """Batches whose gradients make one optimiser step."""


class SeedRange(Section):
    start: int = 0
    count: int = Field(ge=1)


class Rollouts(Section):
    """`[training.rollouts]`: which tasks are played, how often, and what a failure means."""

    prompts_per_iteration: int | None = Field(default=None, ge=1)
    """Tasks (groups) per iteration."""
    rollouts_per_prompt: int | None = Field(default=None, ge=2)
    """Members of a group."""
    max_concurrent: int | None = Field(default=None, ge=1)
    seeds: tuple[int, ...] | SeedRange | None = None
    """Training seeds: a list, or `{start, count}`; absent means the task app's own range."""
    split: str | None = None
    """Dataset split passed to the task app in `env.config`."""
    seed_order: Literal["shuffle", "sequential"] = "shuffle"
    """Order within an epoch; seeds are drawn without replacement."""
    max_turns: int | None = Field(default=None, ge=1)
    ops: tuple[str, ...] = ()
    deadline_s: float = Field(default=600.0, gt=0)
    """Whole time of one attempt at one rollout."""
    max_attempts: int = Field(default=3, ge=1)
    """Attempts at one rollout before its group is replaced by a fresh seed."""
    failure_reward: float | None = Field(default=None, allow_inf_nan=False)
    """Return of an episode that the policy broke; absent means the task app's declared minimum."""
    min_group_members: int | None = Field(default=None, ge=2)
    """Scored members that a group needs; absent means all of them."""
    record: FreeTable = {}
    """`trace = false` leaves messages and observations out of the stored traces."""


class Training(Section):
    """`[training]`: the optimiser's side of an iteration."""

    num_epochs: int = Field(default=1, ge=1)
    """Passes over the seeds are not counted here: iterations = num_epochs x iterations_per_epoch."""
    iterations_per_epoch: int = Field(default=10, ge=1)
    batch_size: int | None = Field(default=None, ge=1)
    """Prompts per optimiser step (a wire unit: elsewhere a batch counts rollouts)."""
    group_size: int | None = Field(default=None, ge=2)
    """Same as `[training.rollouts] rollouts_per_prompt`."""
    max_turns: int | None = Field(default=None, ge=1)
    learning_rate: float = Field(default=1e-6, gt=0)
    warmup_steps: int = Field(default=0, ge=0)
    weight_decay: float = Field(default=0.0, ge=0)
    adam_beta1: float = Field(default=0.9, ge=0, lt=1)
    adam_beta2: float = Field(default=0.95, ge=0, lt=1)
    max_grad_norm: float = Field(default=1.0, gt=0)
    seed: int = 0
    """Seeds of shuffling and, at staleness 0, of each sampled token."""
    clip_low: float = Field(default=0.2, gt=0, lt=1)
    """PPO clip below 1."""
    clip_high: float = Field(default=0.2, gt=0)
    """PPO clip above 1; larger than `clip_low` is clip-higher (DAPO)."""
    updates_per_batch: int = Field(default=1, ge=1)
    """Optimiser steps taken on each batch."""
    advantage: Literal["grpo", "dr_grpo"] = "grpo"
    """`grpo` divides by the group's standard deviation; `dr_grpo` only subtracts the mean."""
    normalization: Literal["token", "sequence"] = "token"
    """`token`: mean over all trainable tokens of the optimiser batch; `sequence`: mean of rollout means."""
    drop_zero_variance_groups: bool = True
    """Leave out groups whose members all got the same return (their advantage is zero)."""
    max_tokens_per_microbatch: int = Field(default=16384, ge=64)
    max_staleness: Literal[0] = 0
    """Published versions that a trajectory may be behind; 0 is synchronous."""
    checkpoint_every: int = Field(default=10, ge=1)
    """Keep a checkpoint for good after each so many iterations (the last is always kept)."""
    max_logprob_mismatch: float = Field(default=0.05, gt=0)
    """Largest mean |trainer - engine| logprob of sampled tokens before the job stops with that reason."""
    credit: Literal["outcome", "outcome_plus_events"] = "outcome"
    """What an episode's return is: the outcome reward alone, or with its event rewards added."""
    rollouts: Rollouts = Rollouts()
    weight_sync_interval: Literal[1] = 1
    """Weights are published after each iteration."""
    log_interval: int | None = None
    """Metrics are written for each iteration."""
    weight_sync: FreeTable | None = None
    """Weights are published and proven after each iteration."""


class Policy(Section):
    """`[policy]`: how the policy samples."""

    temperature: float | None = Field(default=None, gt=0)
    """Absent means `[rollout.policy_config] temperature`, else 1."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Bound of one reply."""
    max_model_len: int | None = Field(default=None, ge=16)
    """Longest sequence the engine holds; absent means the model's own limit."""
    seeded: Literal["auto"] | bool = "auto"
    """A seed per call: `auto` is on at staleness 0 and in evaluation."""
    constrained: Literal[False] = False
    """Grammar-constrained decoding samples from another distribution than is scored, so RL refuses it."""
    history: Literal["exact", "template"] = "exact"
    top_p: Literal[1] | None = None
    top_k: Literal[-1, 0] | None = None


NOT_USED = (
    *("compute", "topology", "vllm", "reference", "lora", "judge", "rubric"),
    *("training.log_interval", "training.weight_sync"),
)
"""Accepted for other clients' sake and without effect; each job's events name those present."""


class RLConfig(Section):
    """An RL job."""

    job_type: Literal["rl"] | None = None
    type: Literal["rl"] | None = None
    algorithm: Algorithm = Algorithm()
    services: Services
    model: Model
    backend: Backend = Backend()
    compute: Compute | None = None
    rollout: Rollout = Rollout()
    training: Training = Training()
    policy: Policy = Policy()
    evaluation: Evaluation | None = None
    tags: dict[str, str | int | float | bool] = {}
    data: FreeTable = {}
    topology: FreeTable | None = None
    vllm: FreeTable | None = None
    reference: FreeTable | None = None
    lora: FreeTable | None = None
    judge: FreeTable | None = None
    rubric: FreeTable | None = None

    @model_validator(mode="after")
    def _keys_agree(self) -> Self:
        if self.model.trainer_mode != "full":
            raise ValueError(
                f'[model] trainer_mode = {self.model.trainer_mode!r} is not trained yet; use "full"'
            )
        if self.algorithm.variety != "grpo":
            raise ValueError('[algorithm] variety = "gspo" is not trained yet; use "grpo"')
        if self.algorithm.method == "reinforce":
            raise ValueError('[algorithm] method = "reinforce" is not trained yet; use "policy_gradient"')
        for names, values in (
            (
                "[training] group_size and [training.rollouts] rollouts_per_prompt",
                (self.training.group_size, self.training.rollouts.rollouts_per_prompt),
            ),
            (
                "[training] max_turns, [training.rollouts] max_turns and [rollout] max_turns",
                (self.training.max_turns, self.training.rollouts.max_turns, self.rollout.max_turns),
            ),
            (
                "[training.rollouts] max_concurrent and [rollout] max_concurrent_rollouts",
                (self.training.rollouts.max_concurrent, self.rollout.max_concurrent_rollouts),
            ),
            (
                "[training.rollouts] prompts_per_iteration and [training] batch_size x [rollout] batches_per_step",
                (
                    self.training.rollouts.prompts_per_iteration,
                    self.training.batch_size and self.training.batch_size * self.rollout.batches_per_step,
                ),
            ),
        ):
            given = {value for value in values if value is not None}
            if len(given) > 1:
                raise ValueError(
                    f"{names} mean the same and differ ({' and '.join(map(str, sorted(given)))}); keep one"
                )
        planned = self.prompts_per_iteration * self.group_size
        if self.rollout.episodes_per_batch not in (None, planned):
            raise ValueError(
                f"[rollout] episodes_per_batch = {self.rollout.episodes_per_batch}, but prompts x rollouts "
                f"per prompt is {self.prompts_per_iteration} x {self.group_size} = {planned}; set one of them"
            )
        if self.min_group_members > self.group_size:
            raise ValueError(
                f"[training.rollouts] min_group_members = {self.min_group_members} is above the group size "
                f"{self.group_size}"
            )
        if not any(op in AGENT_OPS for op in self.ops):
            raise ValueError(f'ops = {list(self.ops)} never asks the policy; add "agent"')
        return self

    # Derived values: the one place where keys of one meaning are resolved.

    @property
    def iterations(self) -> int:
        return self.training.num_epochs * self.training.iterations_per_epoch

    @property
    def group_size(self) -> int:
        return self.training.rollouts.rollouts_per_prompt or self.training.group_size or 8

    @property
    def prompts_per_iteration(self) -> int:
        explicit = self.training.rollouts.prompts_per_iteration
        if explicit is not None:
            return explicit
        return (self.training.batch_size or 8) * self.rollout.batches_per_step

    @property
    def max_turns(self) -> int:
        return self.training.max_turns or self.training.rollouts.max_turns or self.rollout.max_turns or 1

    @property
    def max_concurrent(self) -> int:
        return self.training.rollouts.max_concurrent or self.rollout.max_concurrent_rollouts or 64

    @property
    def min_group_members(self) -> int:
        return self.training.rollouts.min_group_members or self.group_size

    @property
    def ops(self) -> tuple[str, ...]:
        """The episode's plan: `max_turns` agent ops, a shorter given plan cycled up to it."""
        return cycled_ops(self.training.rollouts.ops or self.rollout.ops, self.max_turns)

    @property
    def training_seeds(self) -> tuple[int, ...] | None:
        """Seeds to train on; None leaves it to the task app."""
        seeds = self.training.rollouts.seeds
        if isinstance(seeds, SeedRange):
            return tuple(range(seeds.start, seeds.start + seeds.count))
        return seeds

    @property
    def temperature(self) -> float:
        if self.policy.temperature is not None:
            return self.policy.temperature
        asked = self.rollout.policy_config.get("temperature")
        return float(asked) if asked else 1.0

    @property
    def max_reply_tokens(self) -> int | None:
        asked: Any = self.rollout.policy_config.get("max_tokens")
        return self.policy.max_tokens or (int(asked) if asked else None)

    @property
    def split(self) -> str | None:
        return self.training.rollouts.split

    @property
    def is_seeded(self) -> bool:
        return self.training.max_staleness == 0 if self.policy.seeded == "auto" else self.policy.seeded

    @property
    def not_used(self) -> tuple[str, ...]:
        """Keys present that have no effect."""
        return keys_present(self, NOT_USED)
