"""The part of `[training]` that says what is minimised: loss, baseline, normaliser, KL, importance, credit."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from headrace.config.base import Lowered, Section


def _named(loss: object) -> object:
    """Other clients write the clipped surrogate as the family's name, and names in capitals."""
    if not isinstance(loss, str) or ":" in loss:
        return loss
    return "ppo_clip" if loss.lower() == "grpo" else loss.lower()


class LossOptions(Section):
    """Keys of `[training]`; those that contradict each other, or would not act, are refused."""

    loss: Annotated[str, BeforeValidator(_named)] = "ppo_clip"
    """`ppo_clip` (also written `grpo`), `gspo`, `cispo`, `sapo`, `dppo`, or a function of your own as
    `package.module:name`."""
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
    """`sapo`: sharpness of the gate where the advantage is negative."""
    dppo_max_shift: float = Field(default=0.2, gt=0, lt=1)
    """`dppo`: a token whose probability has moved further in its advantage's direction is left out."""
    dppo_pull: float = Field(default=1e-3, ge=0)
    """`dppo`: weight of the squared distance to the sampling logprobs."""
    advantage: Annotated[Literal["grpo", "dr_grpo", "rloo", "reinforce_pp", "maxrl"], Lowered] = "grpo"
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
    credit: Literal["outcome", "outcome_plus_events", "reward_to_go"] = "outcome"
    """What a call is credited with: the episode's outcome reward, that with all event rewards added, or the
    rewards from this call on (event rewards of the calls that caused them, then the outcome)."""
    discount: float = Field(default=1.0, gt=0, le=1)
    """Per call, of later rewards under `reward_to_go`."""
    overlong_buffer: int | None = Field(default=None, ge=1)
    """Tokens before a reply's limit in which the return falls by up to 1 (DAPO's soft overlong punishment)."""
    overlong_filter: bool = False
    """Do not train on episodes with a reply that was ended by its limit; they stay in the group's baseline."""

    @property
    def bound_low(self) -> float:
        return self.clip_low or (3e-4 if self.loss == "gspo" else 0.2)

    @property
    def bound_high(self) -> float:
        return self.clip_high or (4e-4 if self.loss == "gspo" else 0.2)

    @model_validator(mode="after")
    def _loss_is_known(self) -> Self:
        if self.loss not in _OPTIONS and not re.fullmatch(r"[\w.]+:\w+", self.loss):
            raise ValueError(
                f"[training] loss = {self.loss!r} is none of {', '.join(_OPTIONS)}, and no function "
                "written as package.module:name"
            )
        return self

    @model_validator(mode="after")
    def _options_act(self) -> Self:
        known = {key for keys in _OPTIONS.values() for key in keys}
        for key in sorted(known & self._changed - set(_OPTIONS.get(self.loss, ()))):
            users = ", ".join(name for name, keys in _OPTIONS.items() if key in keys)
            raise ValueError(
                f'[training] {key} has no effect with loss = "{self.loss}"; it belongs to {users}'
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

    @model_validator(mode="after")
    def _options_agree(self) -> Self:
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
        return self

    @property
    def _changed(self) -> set[str]:
        """Keys with another value than their default: a stored snapshot names every key."""
        return {key for key, field in type(self).model_fields.items() if getattr(self, key) != field.default}


_OPTIONS = {
    "ppo_clip": ("clip_low", "clip_high", "dual_clip", "ratio_cap"),
    "gspo": ("clip_low", "clip_high"),
    "cispo": ("ratio_cap",),
    "sapo": ("sapo_temperature_positive", "sapo_temperature_negative"),
    "dppo": ("dppo_max_shift", "dppo_pull"),
}
"""Loss -> the keys that act with it."""
