"""Weights for the gap between the policy that sampled and the one the ratio starts from. Never a gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from headrace_trainer.losses.tokens import LossTokens, bounded_exp

Correction = Literal["none", "token", "token_mask", "sequence", "sequence_mask", "geometric_mask"]


@dataclass(frozen=True)
class ImportanceSums:
    """Sums over tokens, to be added over micro-batches before they are divided."""

    n_tokens: int = 0
    weight_sum: float = 0.0
    square_sum: float = 0.0
    weight_max: float = 0.0
    n_held: int = 0
    """Tokens whose weight was truncated or set to 0."""

    def __add__(self, other: ImportanceSums) -> ImportanceSums:
        return ImportanceSums(
            self.n_tokens + other.n_tokens,
            self.weight_sum + other.weight_sum,
            self.square_sum + other.square_sum,
            max(self.weight_max, other.weight_max),
            self.n_held + other.n_held,
        )

    @property
    def effective_share(self) -> float:
        """Effective sample size over the number of tokens, (sum w)^2 / (n sum w^2): 1 when all weigh alike."""
        if not self.square_sum:
            return 0.0
        return self.weight_sum**2 / (self.n_tokens * self.square_sum)


@torch.no_grad()
def importance_weights(
    tokens: LossTokens, correction: Correction, *, low: float, high: float
) -> tuple[Tensor, ImportanceSums]:
    """Weight of each token from w = exp(old - behaviour), shape (N,).

    `token`: min(w, high) (truncated importance sampling, Yao et al. 2025). `token_mask`: w within
    [low, high], else 0 (IcePop). `sequence` and `sequence_mask`: the same of the rollout's product of
    ratios, for each of its tokens. `geometric_mask`: 1 where the rollout's geometric mean lies within
    [low, high], else 0. `none`: 1, and the sums are those of w. Log weights are clamped to +-20 before
    the exponential.
    """
    gap_N = tokens.old_logprobs_N - tokens.behaviour_logprobs_N
    match correction:
        case "none" | "token" | "token_mask":
            raw_N = bounded_exp(gap_N)
        case "sequence" | "sequence_mask":
            raw_N = bounded_exp(tokens.rollout_sum(gap_N))[tokens.rollout_N]
        case "geometric_mask":
            raw_N = bounded_exp(tokens.rollout_mean(gap_N))[tokens.rollout_N]
    is_outside_N = (raw_N < low) | (raw_N > high)
    if correction == "none":
        return torch.ones_like(raw_N), _sums(raw_N, torch.zeros_like(is_outside_N))
    if correction in ("token", "sequence"):
        weights_N, is_held_N = raw_N.clamp(max=high), raw_N > high
    else:
        kept_N = torch.ones_like(raw_N) if correction == "geometric_mask" else raw_N
        weights_N, is_held_N = torch.where(is_outside_N, 0.0, kept_N), is_outside_N
    return weights_N, _sums(weights_N, is_held_N)


def _sums(weights_N: Tensor, is_held_N: Tensor) -> ImportanceSums:
    wide_N = weights_N.double()
    return ImportanceSums(
        n_tokens=weights_N.numel(),
        weight_sum=float(wide_N.sum()),
        square_sum=float(wide_N.square().sum()),
        weight_max=float(wide_N.max()) if wide_N.numel() else 0.0,
        n_held=int(is_held_N.sum()),
    )
