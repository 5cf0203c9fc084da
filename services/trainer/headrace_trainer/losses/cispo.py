"""The truncated importance weight as a constant in front of the log-probability."""

from __future__ import annotations

import torch

from headrace_trainer.losses.tokens import LossTokens, TokenLoss


def cispo(tokens: LossTokens, *, ratio_cap: float) -> TokenLoss:
    """-sg(min(r, ratio_cap)) A lp (MiniMax-M1 2025, eq. 4 and 5, with the cap as an absolute value).

    No token's gradient is silenced, only its weight is bounded.
    """
    ratio_N = tokens.ratio_N.detach()
    loss_N = -ratio_N.clamp(max=ratio_cap) * tokens.advantages_N * tokens.logprobs_N
    is_capped_N = ratio_N > ratio_cap
    return TokenLoss(loss_N, torch.zeros_like(is_capped_N), is_capped_N)
