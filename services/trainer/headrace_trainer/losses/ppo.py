"""The clipped surrogate, one ratio per token: PPO, and GRPO, DAPO, Dr. GRPO by their normalisers."""

from __future__ import annotations

import torch

from headrace_trainer.losses.tokens import LossTokens, TokenLoss


def ppo_clip(
    tokens: LossTokens,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
    ratio_cap: float | None = None,
) -> TokenLoss:
    """-min(r A, clip(r, 1 - clip_low, 1 + clip_high) A) with r = exp(lp - old).

    PPO's surrogate (Schulman et al. 2017, eq. 7) with two bounds (clip-higher: Yu et al. 2025, DAPO,
    eq. 8). `dual_clip` c > 1 bounds the loss of a negative advantage by -c A (Ye et al. 2020, eq. 5).
    `ratio_cap` bounds r before the minimum, on both signs (INTELLECT-2, two-sided clipping).
    """
    ratio_N, advantages_N = tokens.ratio_N, tokens.advantages_N
    capped_N = ratio_N if ratio_cap is None else ratio_N.clamp(max=ratio_cap)
    objective_N = torch.minimum(
        capped_N * advantages_N, ratio_N.clamp(1 - clip_low, 1 + clip_high) * advantages_N
    )
    if dual_clip is not None:
        floor_N = torch.maximum(objective_N, dual_clip * advantages_N)
        objective_N = torch.where(advantages_N < 0, floor_N, objective_N)
    held_N = ratio_N.detach()
    return TokenLoss(
        -objective_N,
        (held_N < 1 - clip_low) & (advantages_N < 0),
        (held_N > 1 + clip_high) & (advantages_N > 0),
    )
