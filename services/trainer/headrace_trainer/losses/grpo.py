"""The clipped policy-gradient term."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

MAX_LOG_RATIO = 20.0


@dataclass(frozen=True)
class RatioSums:
    """Sums over tokens, to be added over micro-batches before they are divided."""

    n_tokens: int = 0
    n_clipped_low: int = 0
    """Tokens with ratio < 1 - clip_low and a negative advantage: those the clip silences."""
    n_clipped_high: int = 0
    ratio_sum: float = 0.0
    ratio_max: float = 0.0

    def __add__(self, other: RatioSums) -> RatioSums:
        return RatioSums(
            self.n_tokens + other.n_tokens,
            self.n_clipped_low + other.n_clipped_low,
            self.n_clipped_high + other.n_clipped_high,
            self.ratio_sum + other.ratio_sum,
            max(self.ratio_max, other.ratio_max),
        )


def clipped_policy_loss(
    logprobs_N: Tensor,
    old_logprobs_N: Tensor,
    advantages_N: Tensor,
    weights_N: Tensor,
    *,
    clip_low: float,
    clip_high: float,
) -> tuple[Tensor, RatioSums]:
    """sum_t w_t * -min(r_t A_t, clip(r_t, 1 - clip_low, 1 + clip_high) A_t), r = exp(lp - old).

    PPO's surrogate (Schulman et al. 2017, eq. 7) with two bounds (Yu et al. 2025, DAPO, eq. 8).
    `old_logprobs_N` carry no gradient. The log ratio is clamped to +-20 before the exponential.
    The result is already normalised: `weights_N` sum to 1 over the optimiser batch.
    """
    log_ratio_N = (logprobs_N - old_logprobs_N.detach()).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    ratio_N = log_ratio_N.exp()
    bounded_N = ratio_N.clamp(1 - clip_low, 1 + clip_high)
    objective_N = torch.minimum(ratio_N * advantages_N, bounded_N * advantages_N)
    with torch.no_grad():
        sums = RatioSums(
            n_tokens=ratio_N.numel(),
            n_clipped_low=int(((ratio_N < 1 - clip_low) & (advantages_N < 0)).sum()),
            n_clipped_high=int(((ratio_N > 1 + clip_high) & (advantages_N > 0)).sum()),
            ratio_sum=float(ratio_N.double().sum()),
            ratio_max=float(ratio_N.max()) if ratio_N.numel() else 0.0,
        )
    return -(weights_N * objective_N).sum(), sums
