"""Cross entropy of demonstrated tokens."""

from __future__ import annotations

from torch import Tensor


def cross_entropy(logprobs_N: Tensor, weights_N: Tensor) -> Tensor:
    """-sum_t w_t log p_t; with weights 1 / N the mean over all trained tokens of the batch."""
    return -(weights_N * logprobs_N).sum()
