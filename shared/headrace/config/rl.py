"""The config of an RL job (`headrace train --config rl.toml`)."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from headrace.config.base import Section, keys_present, refuse_difference
from headrace.config.rollouts import Rollout, Rollouts, SeedRange
from headrace.config.sections import (
    AGENT_OPS,
    MAX_TURNS,
    Backend,
    Compute,
    Evaluation,
    FreeTable,
    Model,
    Reply,
    Services,
    Tags,
    cycled_ops,
)


class Algorithm(Section):
    """`[algorithm]`: the family of the job."""

    type: Literal["online"] = "online"
    method: Literal["policy_gradient", "ppo", "reinforce"] = "policy_gradient"
    variety: Literal["grpo", "gspo"] = "grpo"
    """`grpo` uses a ratio per token; `gspo` one per sequence."""


class Training(Section):
    """`[training]`: the optimiser's side of an iteration."""

    num_epochs: int = Field(default=1, ge=1)
    """Passes over the seeds are not counted here: iterations = num_epochs x iterations_per_epoch."""
    iterations_per_epoch: int = Field(default=10, ge=1)
    batch_size: int | None = Field(default=None, ge=1)
    """Prompts per optimiser step (a wire unit: elsewhere a batch counts rollouts)."""
    group_size: int | None = Field(default=None, ge=2)
    """Same as `[training.rollouts] rollouts_per_prompt`."""
    max_turns: int | None = Field(default=None, ge=1, le=MAX_TURNS)
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


class Policy(Reply):
    """`[policy]`: how the policy samples."""

    temperature: float | None = Field(default=None, gt=0)
    """Absent means `[rollout.policy_config] temperature`, else 1."""
    seeded: Literal["auto"] | bool = "auto"
    """A seed per call: `auto` is on at staleness 0; evaluations always have one."""


NOT_USED = (
    *("compute", "topology", "vllm", "reference", "lora", "judge", "rubric"),
    *("training.log_interval", "training.weight_sync"),
)
"""Accepted for other clients' sake and without effect; each job's events name those present."""


MAX_ITERATIONS = 10**9


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
    tags: Tags = {}
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
        training, rollouts, rollout = self.training, self.training.rollouts, self.rollout
        refuse_difference(
            "[training] group_size and [training.rollouts] rollouts_per_prompt",
            training.group_size,
            rollouts.rollouts_per_prompt,
        )
        refuse_difference(
            "[training] max_turns, [training.rollouts] max_turns and [rollout] max_turns",
            training.max_turns,
            rollouts.max_turns,
            rollout.max_turns,
        )
        refuse_difference(
            "[training.rollouts] max_concurrent and [rollout] max_concurrent_rollouts",
            rollouts.max_concurrent,
            rollout.max_concurrent_rollouts,
        )
        refuse_difference(
            "[training.rollouts] prompts_per_iteration and [training] batch_size x [rollout] batches_per_step",
            rollouts.prompts_per_iteration,
            training.batch_size and training.batch_size * rollout.batches_per_step,
        )
        refuse_difference(
            "[training.rollouts] ops and [rollout] ops", rollouts.ops or None, rollout.ops or None
        )
        return self

    @model_validator(mode="after")
    def _plan_is_possible(self) -> Self:
        if self.rollout.batches_per_step > 1 and self.training.batch_size is None:
            raise ValueError(
                "[rollout] batches_per_step counts batches of [training] batch_size; set that, too"
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
        seeds = self.training.rollouts.seeds
        if isinstance(seeds, tuple) and len(set(seeds)) != len(seeds):
            twice = next(seed for seed, n in Counter(seeds).items() if n > 1)
            raise ValueError(f"[training.rollouts] seeds holds {twice} more than once; list each seed once")
        if seeds == ():
            raise ValueError(
                "[training.rollouts] seeds is an empty list; list task seeds or give {start, count}"
            )
        if self.policy.temperature is None and self.rollout.policy_config.get("temperature") == 0:
            raise ValueError(
                "[rollout.policy_config] temperature = 0 makes all members of a group alike; use one above 0"
            )
        if self.iterations > MAX_ITERATIONS:
            raise ValueError(
                f"[training] num_epochs x iterations_per_epoch = {self.iterations} is above {MAX_ITERATIONS}"
            )
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
