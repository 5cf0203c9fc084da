"""Log-probabilities of trained tokens: the one function that RL, the probe and SFT share."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from headrace_trainer.batch import MicroBatch

LOGITS_AT_ONCE = 2**26
"""Logits that exist at once (256 MiB in fp32), instead of B x T x V."""


def sampled_logprobs(
    model: Any, microbatch: MicroBatch, *, with_entropy: bool = False, chunk: int | None = None
) -> tuple[Tensor, Tensor | None]:
    """log p of each trained token at the temperature it was sampled at, fp32, shape (N,).

    The second value is the entropy of the distribution each was drawn from, without gradient, or
    None. Positions that are not trained never reach the head. Gradients flow as the caller's grad
    mode says; of more than `chunk` tokens (absent: as many as LOGITS_AT_ONCE allows) the logits are
    computed again in the backward pass instead of kept.
    """
    head = model.get_output_embeddings()
    chunk = chunk or max(1, LOGITS_AT_ONCE // head.weight.shape[0])
    hidden_BTH = model.base_model(input_ids=microbatch.token_ids_BT, use_cache=False).last_hidden_state
    hidden_NH = hidden_BTH[microbatch.row_N, microbatch.position_N - 1]
    logprobs, entropies = [], []
    for start in range(0, microbatch.n_trainable, chunk):
        part = slice(start, start + chunk)
        arguments = (
            head,
            hidden_NH[part],
            microbatch.target_N[part],
            microbatch.temperature_N[part],
            with_entropy,
        )
        if torch.is_grad_enabled() and microbatch.n_trainable > chunk:
            logprobs_C, entropy_C = checkpoint(_head, *arguments, use_reentrant=False)  # pyright: ignore
        else:
            logprobs_C, entropy_C = _head(*arguments)
        logprobs.append(logprobs_C)
        entropies.append(entropy_C)
    empty = hidden_NH.new_zeros(0, dtype=torch.float32)
    return torch.cat([*logprobs, empty]), torch.cat([*entropies, empty]) if with_entropy else None


def _head(
    head: Any, hidden_CH: Tensor, target_C: Tensor, temperature_C: Tensor, with_entropy: bool
) -> tuple[Tensor, Tensor]:
    logits_CV = head(hidden_CH).float() / temperature_C.unsqueeze(1)
    normalizer_C = torch.logsumexp(logits_CV, dim=1)
    logprobs_C = logits_CV.gather(1, target_C.unsqueeze(1)).squeeze(1) - normalizer_C
    if not with_entropy:
        return logprobs_C, logprobs_C.new_zeros(0)
    with torch.no_grad():
        logp_CV = logits_CV - normalizer_C.unsqueeze(1)
        entropy_C = -(logp_CV.exp() * logp_CV).sum(dim=1)
    return logprobs_C, entropy_C
