"""Estimators of KL(policy || reference) from one sampled token each (Schulman 2020)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from headrace_trainer.losses.tokens import MAX_LOG_RATIO

Estimator = Literal["k1", "k2", "k3"]


def kl_per_token(logprobs_N: Tensor, reference_logprobs_N: Tensor, estimator: Estimator) -> Tensor:
    """With d = reference - policy: k1 = -d, k2 = d^2 / 2, k3 = exp(d) - d - 1.

    As a loss, k2's gradient is that of the reverse KL on-policy and k3's the usual surrogate; k1's
    gradient has expectation zero, so it belongs into the reward. d is clamped to +-20 before the
    exponential, where the gradient of the exponential ends.
    """
    gap_N = reference_logprobs_N - logprobs_N
    if estimator == "k1":
        return -gap_N
    if estimator == "k2":
        return gap_N.square() / 2
    return torch.expm1(gap_N.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)) - gap_N
