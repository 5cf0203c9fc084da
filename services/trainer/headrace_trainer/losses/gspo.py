"""One ratio per rollout."""

from __future__ import annotations

import torch

from headrace_trainer.losses.tokens import LossTokens, TokenLoss, bounded_exp


def gspo(tokens: LossTokens, *, clip_low: float, clip_high: float) -> TokenLoss:
    """-min(s A, clip(s, 1 - clip_low, 1 + clip_high) A), s the geometric mean of a rollout's token ratios.

    s = exp(mean_t (lp - old)) (Zheng et al. 2025, GSPO, eq. 5 and 7; there 3e-4 and 4e-4 bound it). A
    rollout that was split into several rows has one ratio. Each of its tokens carries the whole
    rollout's loss, so the normaliser has to average over rollouts.
    """
    log_ratio_R = tokens.rollout_mean(tokens.logprobs_N - tokens.old_logprobs_N)
    ratio_N = bounded_exp(log_ratio_R)[tokens.rollout_N]
    advantages_N = tokens.advantages_N
    objective_N = torch.minimum(
        ratio_N * advantages_N, ratio_N.clamp(1 - clip_low, 1 + clip_high) * advantages_N
    )
    held_N = ratio_N.detach()
    return TokenLoss(
        -objective_N,
        (held_N < 1 - clip_low) & (advantages_N < 0),
        (held_N > 1 + clip_high) & (advantages_N > 0),
    )
