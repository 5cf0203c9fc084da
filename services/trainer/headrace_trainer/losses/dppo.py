"""Tokens whose probability has moved far in the direction of their advantage are left out."""

from __future__ import annotations

import torch

from headrace_trainer.losses.tokens import LossTokens, TokenLoss, bounded_exp


def dppo(tokens: LossTokens, *, max_shift: float, pull: float) -> TokenLoss:
    """-A exp(lp - behaviour) where the shift p - p_behaviour is within bounds, plus pull (lp - behaviour)^2.

    A token with A > 0 is dropped once its probability has risen by more than `max_shift`, one with
    A < 0 once it has fallen by more (divergence masking as in prime-rl's default loss). The pull acts
    on every token. The behaviour policy is the engine's, so no further importance weight belongs here.
    """
    gap_N = tokens.logprobs_N - tokens.behaviour_logprobs_N
    with torch.no_grad():
        shift_N = tokens.logprobs_N.exp() - tokens.behaviour_logprobs_N.exp()
        is_high_N = (tokens.advantages_N > 0) & (shift_N > max_shift)
        is_low_N = (tokens.advantages_N < 0) & (shift_N < -max_shift)
    kept_gap_N = torch.where(is_high_N | is_low_N, 0.0, gap_N)
    term_N = torch.where(is_high_N | is_low_N, 0.0, -tokens.advantages_N * bounded_exp(kept_gap_N))
    return TokenLoss(term_N + pull * gap_N.square(), is_low_N, is_high_N)
