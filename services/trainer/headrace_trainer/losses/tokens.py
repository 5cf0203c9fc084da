"""What every loss sees and gives back. Shape suffixes: N trained tokens, R rollouts of the micro-batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

MAX_LOG_RATIO = 20.0
"""Log ratios are held within this before an exponential."""


@dataclass(frozen=True)
class LossTokens:
    """The trained tokens of one micro-batch, which holds rollouts whole. All columns have shape (N,)."""

    logprobs_N: Tensor
    """log p under the weights being trained; the only column that carries a gradient."""
    old_logprobs_N: Tensor
    """log p at the start of the optimiser batch (the proximal policy)."""
    behaviour_logprobs_N: Tensor
    """log p as the engine sampled."""
    advantages_N: Tensor
    rollout_N: Tensor
    """int64, 0 to R - 1: the rollout that each token belongs to."""
    n_rollouts: int

    def __post_init__(self) -> None:
        n = self.logprobs_N.numel()
        for name in ("old_logprobs_N", "behaviour_logprobs_N", "advantages_N", "rollout_N"):
            column: Tensor = getattr(self, name)
            if column.shape != (n,):
                raise ValueError(f"{name} has shape {tuple(column.shape)}, logprobs_N has ({n},)")
            if column.requires_grad:
                raise ValueError(f"{name} carries a gradient; only logprobs_N may")

    @cached_property
    def ratio_N(self) -> Tensor:
        """exp(logprobs - old)."""
        return bounded_exp(self.logprobs_N - self.old_logprobs_N)

    def rollout_mean(self, values_N: Tensor) -> Tensor:
        """Mean of a column over the tokens of each rollout, shape (R,); 0 where a rollout has none."""
        zeros_R = values_N.new_zeros(self.n_rollouts)
        sum_R = zeros_R.index_add(0, self.rollout_N, values_N)
        count_R = zeros_R.index_add(0, self.rollout_N, torch.ones_like(values_N))
        return sum_R / count_R.clamp(min=1)

    def rollout_sum(self, values_N: Tensor) -> Tensor:
        """Sum of a column over the tokens of each rollout, shape (R,)."""
        return values_N.new_zeros(self.n_rollouts).index_add(0, self.rollout_N, values_N)


@dataclass(frozen=True)
class TokenLoss:
    """The loss of each token, to be weighted by the batch's normaliser, and which tokens were held back."""

    loss_N: Tensor
    is_clipped_low_N: Tensor | None = None
    """bool: a bound below silenced or capped the token; None for a loss without bounds."""
    is_clipped_high_N: Tensor | None = None


LossFunction = Callable[[LossTokens], TokenLoss]
"""A policy loss with its options bound."""


def bounded_exp(log_ratio: Tensor) -> Tensor:
    """exp of a log ratio clamped to +-20, so that neither value nor gradient overflows."""
    return log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
