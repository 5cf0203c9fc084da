"""How far the trainer's logprobs lie from those the engine sampled with."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from headrace_trainer.losses.tokens import MAX_LOG_RATIO


@dataclass(frozen=True)
class MismatchSums:
    """Sums over tokens, to be added over micro-batches before they are divided."""

    n_tokens: int = 0
    abs_sum: float = 0.0
    abs_max: float = 0.0
    k3_sum: float = 0.0

    def __add__(self, other: MismatchSums) -> MismatchSums:
        return MismatchSums(
            self.n_tokens + other.n_tokens,
            self.abs_sum + other.abs_sum,
            max(self.abs_max, other.abs_max),
            self.k3_sum + other.k3_sum,
        )

    @property
    def mean_abs(self) -> float:
        return self.abs_sum / self.n_tokens

    @property
    def k3(self) -> float:
        return self.k3_sum / self.n_tokens


@torch.no_grad()
def mismatch(logprobs_N: Tensor, behaviour_logprobs_N: Tensor, is_counted_N: Tensor) -> MismatchSums:
    """|x| and exp(x) - x - 1 of x = trainer - engine over the tokens that `is_counted_N` selects.

    The second is Schulman's k3 estimator of KL(engine || trainer), never negative; x is clamped to
    +-20 before the exponential.
    """
    gap = (logprobs_N - behaviour_logprobs_N)[is_counted_N].double()
    if not gap.numel():
        return MismatchSums()
    clamped = gap.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return MismatchSums(
        n_tokens=gap.numel(),
        abs_sum=float(gap.abs().sum()),
        abs_max=float(gap.abs().max()),
        k3_sum=float((torch.expm1(clamped) - clamped).sum()),
    )
