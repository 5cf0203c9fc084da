"""What the ratios of a batch were, and how many tokens a loss held back."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from headrace_trainer.losses.tokens import LossTokens, TokenLoss


@dataclass(frozen=True)
class RatioSums:
    """Sums over tokens, to be added over micro-batches before they are divided."""

    n_tokens: int = 0
    n_clipped_low: int = 0
    n_clipped_high: int = 0
    ratio_sum: float = 0.0
    ratio_min: float = math.inf
    ratio_max: float = 0.0

    def __add__(self, other: RatioSums) -> RatioSums:
        return RatioSums(
            self.n_tokens + other.n_tokens,
            self.n_clipped_low + other.n_clipped_low,
            self.n_clipped_high + other.n_clipped_high,
            self.ratio_sum + other.ratio_sum,
            min(self.ratio_min, other.ratio_min),
            max(self.ratio_max, other.ratio_max),
        )


@torch.no_grad()
def ratio_sums(tokens: LossTokens, loss: TokenLoss) -> RatioSums:
    """Of exp(logprobs - old) per token, whatever ratio the loss itself uses, and of what it clipped."""
    if not tokens.logprobs_N.numel():
        return RatioSums()
    ratio_N = tokens.ratio_N.double()
    return RatioSums(
        n_tokens=ratio_N.numel(),
        n_clipped_low=_count(loss.is_clipped_low_N),
        n_clipped_high=_count(loss.is_clipped_high_N),
        ratio_sum=float(ratio_N.sum()),
        ratio_min=float(ratio_N.min()),
        ratio_max=float(ratio_N.max()),
    )


def _count(is_held_N: Tensor | None) -> int:
    return 0 if is_held_N is None else int(is_held_N.sum())
