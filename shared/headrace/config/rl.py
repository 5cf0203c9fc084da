"""The config of an RL job (`headrace train --config rl.toml`)."""

from __future__ import annotations

import re
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
    loss: str = "ppo_clip"
    """`ppo_clip`, `gspo`, `cispo`, `sapo`, `dppo`, or a function of your own as `package.module:name`."""
    clip_low: float | None = Field(default=None, gt=0, lt=1)
    """Bound of the ratio below 1; absent means 0.2, for `gspo` 3e-4."""
    clip_high: float | None = Field(default=None, gt=0)
    """Bound above 1, larger than `clip_low` for clip-higher (DAPO); absent means 0.2, for `gspo` 4e-4."""
    dual_clip: float | None = Field(default=None, gt=1)
    """`ppo_clip`: the loss of a token with a negative advantage is at most so many times its size."""
    ratio_cap: float | None = Field(default=None, gt=1)
    """`ppo_clip`: largest ratio on both signs; `cispo`: largest weight of a token, absent means 5."""
    sapo_temperature_positive: float = Field(default=1.0, gt=0)
    """`sapo`: sharpness of the gate where the advantage is positive."""
    sapo_temperature_negative: float = Field(default=1.05, gt=0)
    dppo_max_shift: float = Field(default=0.2, gt=0, lt=1)
    """`dppo`: a token whose probability has moved further in its advantage's direction is left out."""
    dppo_pull: float = Field(default=1e-3, ge=0)
    """`dppo`: weight of the squared distance to the sampling logprobs."""
    updates_per_batch: int = Field(default=1, ge=1)
    """Optimiser steps taken on each batch."""
    advantage: Literal["grpo", "dr_grpo", "rloo", "reinforce_pp", "maxrl"] = "grpo"
    """Baseline of a group: `grpo` (mean and standard deviation), `dr_grpo` (mean), `rloo` (mean of the others),
    `reinforce_pp` (mean, then the batch's standard deviation), `maxrl` (mean, divided by it)."""
    normalization: Literal["token", "sequence", "sequence_sum", "constant", "microbatch"] = "token"
    """`token`: mean over all trainable tokens of the optimiser batch (DAPO); `sequence`: mean of rollout means
    (GRPO); `sequence_sum`: mean of rollout sums; `constant`: divided by rollouts x `normalization_length`
    (Dr. GRPO); `microbatch`: mean of each micro-batch (BNPO)."""
    normalization_length: int | None = Field(default=None, ge=1)
    """Tokens by which `constant` divides each rollout's sum."""
    kl_coef: float = Field(default=0.0, ge=0)
    """Weight of the KL to the model that the job started from; 0 loads no reference model."""
    kl_estimator: Literal["k2", "k3"] = "k3"
    """Estimator of the KL as a loss; k1 is no loss, since its gradient has expectation zero."""
    importance: Literal["none", "token", "token_mask", "sequence", "sequence_mask", "geometric_mask"] = "none"
    """Weights for the gap between the engine's logprobs and the trainer's: truncated (`token`, `sequence`),
    or 0 outside the bounds (`token_mask`, `sequence_mask`, `geometric_mask`)."""
    importance_low: float = Field(default=0.5, ge=0, lt=1)
    """Least weight that a mask keeps."""
    importance_high: float = Field(default=2.0, gt=1)
    """Bound of a truncated weight; greatest weight that a mask keeps."""
    drop_zero_variance_groups: bool = True
    """Leave out groups whose members all got the same return (their advantage is zero)."""
    max_tokens_per_microbatch: int = Field(default=16384, ge=64)
    max_staleness: Literal[0] = 0
    """Published versions that a trajectory may be behind; 0 is synchronous."""
    checkpoint_every: int = Field(default=10, ge=1)
    """Keep a checkpoint for good after each so many iterations (the last is always kept)."""
    max_logprob_mismatch: float = Field(default=0.05, gt=0)
    """Largest mean |trainer - engine| logprob of sampled tokens before the job stops with that reason."""
    credit: Literal["outcome", "outcome_plus_events", "reward_to_go"] = "outcome"
    """What a call is credited with: the episode's outcome reward, that with all event rewards added, or the
    rewards from this call on (event rewards of the calls that caused them, then the outcome)."""
    overlong_buffer: int | None = Field(default=None, ge=1)
    """Tokens before a reply's limit in which the return falls by up to 1 (DAPO's soft overlong punishment)."""
    overlong_filter: bool = False
    """Do not train on episodes with a reply that was ended by its limit; they stay in the group's baseline."""
    discount: float = Field(default=1.0, gt=0, le=1)
    """Per call, of later rewards under `reward_to_go`."""
    rollouts: Rollouts = Rollouts()
    weight_sync_interval: Literal[1] = 1
    """Weights are published after each iteration."""
    log_interval: int | None = None
    """Metrics are written for each iteration."""
    weight_sync: FreeTable | None = None
    """Weights are published and proven after each iteration."""

    @property
    def bound_low(self) -> float:
        return self.clip_low or (3e-4 if self.loss == "gspo" else 0.2)

    @property
    def bound_high(self) -> float:
        return self.clip_high or (4e-4 if self.loss == "gspo" else 0.2)

    @property
    def _changed(self) -> set[str]:
        """Keys with another value than their default: a stored snapshot names every key."""
        return {key for key, field in type(self).model_fields.items() if getattr(self, key) != field.default}

    @model_validator(mode="after")
    def _loss_options_fit(self) -> Self:
        if self.loss not in _LOSS_OPTIONS and not re.fullmatch(r"[\w.]+:\w+", self.loss):
            raise ValueError(
                f"[training] loss = {self.loss!r} is none of {', '.join(_LOSS_OPTIONS)}, and no function "
                "written as package.module:name"
            )
        known = {key for keys in _LOSS_OPTIONS.values() for key in keys}
        for key in sorted(known & self._changed - set(_LOSS_OPTIONS.get(self.loss, ()))):
            users = ", ".join(name for name, keys in _LOSS_OPTIONS.items() if key in keys)
            raise ValueError(
                f'[training] {key} has no effect with loss = "{self.loss}"; it belongs to {users}'
            )
        if self.loss == "gspo" and self.normalization != "sequence":
            raise ValueError(
                f'[training] normalization = "{self.normalization}" weighs tokens, but loss = "gspo" has one '
                'value per rollout; use normalization = "sequence"'
            )
        if self.loss == "dppo" and self.importance != "none":
            raise ValueError(
                f'[training] importance = "{self.importance}" would weigh twice: loss = "dppo" starts from the '
                'sampling logprobs already; use importance = "none"'
            )
        if (self.normalization == "constant") != (self.normalization_length is not None):
            raise ValueError(
                '[training] normalization = "constant" and normalization_length belong together; set both or neither'
            )
        if self.credit != "reward_to_go" and "discount" in self._changed:
            raise ValueError(
                '[training] discount acts with credit = "reward_to_go" only; set that or remove it'
            )
        if self.importance == "none" and {"importance_low", "importance_high"} & self._changed:
            raise ValueError("[training] importance_low and importance_high need [training] importance")
        if "kl_estimator" in self._changed and not self.kl_coef:
            raise ValueError("[training] kl_estimator needs a [training] kl_coef above 0")
        return self


_LOSS_OPTIONS = {
    "ppo_clip": ("clip_low", "clip_high", "dual_clip", "ratio_cap"),
    "gspo": ("clip_low", "clip_high"),
    "cispo": ("ratio_cap",),
    "sapo": ("sapo_temperature_positive", "sapo_temperature_negative"),
    "dppo": ("dppo_max_shift", "dppo_pull"),
}
"""Loss -> the keys that act with it."""


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
        buffer = self.training.overlong_buffer
        if buffer is not None and (self.max_reply_tokens is None or buffer > self.max_reply_tokens):
            raise ValueError(
                f"[training] overlong_buffer = {buffer} is taken off the limit of a reply, [policy] max_tokens = "
                f"{self.max_reply_tokens}; set a limit of at least the buffer"
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
