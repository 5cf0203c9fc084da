"""The optimiser's side of an RL config: `[algorithm]`, `[training]`, and how the policy samples."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from headrace.config.base import Lowered, Section, Unused
from headrace.config.loss_options import LossOptions
from headrace.config.rollouts import Rollouts
from headrace.config.sections import MAX_TURNS, Reply, Seed


class Algorithm(Section):
    """`[algorithm]`: the family of the job."""

    type: Annotated[Literal["online"], Lowered] = "online"
    """Makes the job an RL job."""
    method: Annotated[Literal["policy_gradient", "ppo"], Lowered] = "policy_gradient"
    """Both names mean the policy gradient with PPO's clip."""
    variety: Annotated[Literal["grpo", "gspo"], Lowered] = "grpo"
    """`gspo` stands for `[training] loss = "gspo"`, a ratio per rollout, with `normalization = "sequence"`."""


class Training(LossOptions):
    """`[training]`: the optimiser's side of an iteration, and its loss."""

    num_epochs: int = Field(default=1, ge=1)
    """Passes over the seeds are not counted here: iterations = num_epochs x iterations_per_epoch."""
    iterations_per_epoch: int = Field(default=10, ge=1)
    """Iterations that make one epoch; an iteration plays its rollouts, then trains on them."""
    batch_size: int | None = Field(default=None, ge=1)
    """In prompts (tasks), not rollouts as elsewhere: rollouts per optimiser step = batch_size x group_size x
    `[rollout] batches_per_step`. Absent means 8, or `[rollout] episodes_per_batch` / group_size."""
    group_size: int | None = Field(default=None, ge=2)
    """Rollouts of one prompt; same as `[training.rollouts] rollouts_per_prompt`; absent means 8."""
    max_turns: int | None = Field(default=None, ge=1, le=MAX_TURNS)
    """Same as `[rollout] max_turns`."""
    learning_rate: float = Field(default=1e-6, gt=0)
    """Peak of the schedule."""
    warmup_steps: int = Field(default=0, ge=0)
    """Optimiser steps over which the learning rate rises from 0."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Of matrices only (AdamW)."""
    adam_beta1: float = Field(default=0.9, ge=0, lt=1)
    adam_beta2: float = Field(default=0.95, ge=0, lt=1)
    max_grad_norm: float = Field(default=1.0, gt=0)
    """A longer gradient is shortened to this."""
    seed: Seed = 0
    """Seeds of shuffling and, at staleness 0, of each sampled token."""
    updates_per_batch: int = Field(default=1, ge=1)
    """Optimiser steps taken on each batch."""
    drop_zero_variance_groups: bool = True
    """Leave out groups whose members all got the same return (their advantage is zero)."""
    max_tokens_per_microbatch: int = Field(default=16384, ge=64)
    """Tokens of one forward pass, padding included; bounds memory and changes no gradient."""
    kl: float | None = Field(default=None, ge=0)
    """Same as `kl_coef`, which may then be absent."""
    max_staleness: Literal[0] = 0
    """Published versions that a trajectory may be behind; 0 is synchronous."""
    checkpoint_every: int = Field(default=10, ge=1)
    """Keep a checkpoint for good after each so many iterations (the last is always kept)."""
    max_logprob_mismatch: float = Field(default=0.05, gt=0)
    """Largest mean |trainer - engine| logprob of sampled tokens before the job stops with that reason."""
    rollouts: Rollouts = Rollouts()
    weight_sync_interval: Literal[1] = 1
    """Iterations from one publication of the weights to the next."""
    weight_sync: Unused = None
    log_interval: Unused = None
    lora: Unused = None
    rewards: Unused = None
    gradient_accumulation_steps: Unused = None
    max_accumulated_minibatch: Unused = None
    async_semaphore_max: Unused = None
    step_rewards_enabled: Unused = None
    step_rewards_mode: Unused = None
    step_rewards_indicator_lambda: Unused = None
    step_rewards_beta: Unused = None
    step_rewards_strategy: Unused = None
    step_rewards_weights: Unused = None
    step_rewards_k_limits: Unused = None
    event_rewards_kind: Unused = None
    supports_vision: Unused = None
    max_images_per_message: Unused = None


class Policy(Reply):
    """`[policy]`: how the policy samples."""

    temperature: float | None = Field(default=None, gt=0)
    """Absent means `[rollout.policy_config] temperature`, else 1."""
    seeded: Literal["auto"] | bool = "auto"
    """A seed per call: `auto` is on at staleness 0; evaluations always have one."""
    model_name: str | None = None
    """Same as `[model] base`, which may then be absent."""
    source: str | None = None
    """Same as `[model] source`, which may then be absent."""
    trainer_mode: Literal["full"] | None = None
    """Same as `[model] trainer_mode`."""
    label: Unused = None
    inference_url: Unused = None
