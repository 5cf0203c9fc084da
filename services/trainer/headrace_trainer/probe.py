"""The probe: proof that the engine serves the weights that the trainer holds."""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence
from typing import Any

import torch

from headrace.errors import ConfigError
from headrace_trainer.batch import Row, TrainingBatch
from headrace_trainer.logprobs import sampled_logprobs
from headrace_trainer.model import max_model_len, vocab_size
from headrace_trainer.proof import Proof

BLOCK_SIZE = 128
"""Tokens of one cache block of vLLM's CPU build (16 on GPUs)."""
N_TOKENS = 8
"""Tokens the engine adds to the prompt."""


def probe_prompt(
    n_vocabulary: int, *, max_model_len: int, block_size: int = BLOCK_SIZE, n_tokens: int = N_TOKENS
) -> array:
    """A fixed prompt (int32 ids) longer than two cache blocks, so that a stale cache would show.

    Where `max_model_len` leaves no room for that and `n_tokens` more, as long as fits. Raises
    ConfigError when nothing fits.

    >>> len(probe_prompt(278, max_model_len=512)), len(probe_prompt(278, max_model_len=128))
    (272, 120)
    """
    length = min(2 * block_size + 16, max_model_len - n_tokens)
    if length < 1:
        raise ConfigError(
            f"[policy] max_model_len = {max_model_len} leaves no room for the probe of {n_tokens} tokens; raise it"
        )
    draw = random.Random(0)
    return array("i", [draw.randrange(n_vocabulary) for _ in range(length)])


def score(
    model: Any, prompt_ids: Sequence[int], sampled_ids: Sequence[int], temperature: float = 1.0
) -> array:
    """The trainer's log p of `sampled_ids` behind `prompt_ids` (float64 array), at `temperature`."""
    row = Row(
        source="the probe",
        unit="probe",
        token_ids=[*prompt_ids, *sampled_ids],
        mask=[0] * len(prompt_ids) + [1] * len(sampled_ids),
        temperature=temperature,
    )
    batch = TrainingBatch.of_rows([row], normalization="token", max_model_len=max_model_len(model))
    batch.refuse_unknown_tokens(vocab_size(model))
    device = next(model.parameters()).device
    with torch.no_grad():
        (microbatch,) = batch.microbatches(len(row.token_ids), device)
        logprobs_N, _ = sampled_logprobs(model, microbatch)
    return array("d", logprobs_N.double().tolist())


def proof_of(model: Any) -> Proof:
    """The model's own greedy continuation of the probe prompt."""
    prompt = probe_prompt(vocab_size(model), max_model_len=max_model_len(model))
    device, sampled = next(model.parameters()).device, []
    with torch.no_grad():
        for _ in range(N_TOKENS):
            token_ids = torch.tensor([[*prompt, *sampled]], device=device)
            sampled.append(int(model(input_ids=token_ids, logits_to_keep=1).logits[0, -1].argmax()))
    return Proof(list(prompt), sampled, list(score(model, prompt, sampled)))
