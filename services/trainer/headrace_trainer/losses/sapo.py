"""A smooth gate in place of the clip."""

from __future__ import annotations

import torch

from headrace_trainer.losses.tokens import LossTokens, TokenLoss


def sapo(tokens: LossTokens, *, temperature_positive: float, temperature_negative: float) -> TokenLoss:
    """-(4 / tau) sigmoid(tau (r - 1)) A, tau by the sign of A (Gao et al. 2025, Soft Adaptive Policy Optimization).

    At r = 1 the gradient is A, as without a gate; away from it the weight of a token fades.
    """
    advantages_N = tokens.advantages_N
    tau_N = torch.where(advantages_N > 0, temperature_positive, temperature_negative).to(advantages_N.dtype)
    loss_N = -torch.sigmoid(tau_N * (tokens.ratio_N - 1)) * 4 / tau_N * advantages_N
    nothing_N = torch.zeros_like(advantages_N, dtype=torch.bool)
    return TokenLoss(loss_N, nothing_N, nothing_N)
