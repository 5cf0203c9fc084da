"""One SFT optimiser step, and the validation loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from headrace.errors import DataError
from headrace_trainer.batch import Row, TrainingBatch
from headrace_trainer.logprobs import sampled_logprobs
from headrace_trainer.losses.sft import cross_entropy
from headrace_trainer.model import max_model_len, vocab_size
from headrace_trainer.optimizer import clip_and_step
from headrace_trainer.sft_data import SftRow
from headrace_trainer.step import StepMetrics, device_of, refuse_non_finite


def _nothing() -> None:
    return None


def sft_step(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    rows: Sequence[SftRow],
    *,
    learning_rate: float,
    max_grad_norm: float,
    max_tokens: int,
    between: Callable[[], None] = _nothing,
) -> StepMetrics:
    """Cross entropy, averaged over all assistant tokens of `rows`, and one step.

    Metrics: train.loss, train.learning_rate, train.grad_norm, train.tokens. `between` is called
    before each micro-batch (of at most `max_tokens` tokens) and may raise to stop.
    Raises JobFailed when the loss or the gradient is not finite; the weights are untouched then.
    """
    batch = _batch(model, rows)
    if not batch.n_trainable:
        return StepMetrics({"train.tokens": 0.0}, 0, "the batch holds no assistant token")
    optimizer.zero_grad(set_to_none=True)
    loss = 0.0
    for microbatch in batch.microbatches(max_tokens, device_of(model)):
        between()
        logprobs_N, _ = sampled_logprobs(model, microbatch)
        part = cross_entropy(logprobs_N, microbatch.weights_N)
        refuse_non_finite("loss", float(part.detach()))
        part.backward()
        loss += float(part.detach())
    grad_norm = clip_and_step(model, optimizer, learning_rate=learning_rate, max_grad_norm=max_grad_norm)
    metrics = {
        "train.loss": loss,
        "train.learning_rate": learning_rate,
        "train.grad_norm": grad_norm,
        "train.tokens": float(batch.n_trainable),
    }
    return StepMetrics(metrics, 1)


def validation_loss(model: torch.nn.Module, rows: Sequence[SftRow], *, max_tokens: int) -> float:
    """Mean cross entropy over all assistant tokens of `rows`, without gradient.

    Raises DataError for rows without any.
    """
    batch = _batch(model, rows)
    if not batch.n_trainable:
        raise DataError("the validation set holds no assistant token; add a conversation with a reply")
    with torch.no_grad():
        return sum(
            float(cross_entropy(sampled_logprobs(model, microbatch)[0], microbatch.weights_N))
            for microbatch in batch.microbatches(max_tokens, device_of(model))
        )


def _batch(model: torch.nn.Module, rows: Sequence[SftRow]) -> TrainingBatch:
    batch = TrainingBatch.of_rows(
        [
            Row(source=f"line {row.line}", unit=str(row.line), token_ids=row.token_ids, mask=row.mask)
            for row in rows
        ],
        normalization="token",
        max_model_len=max_model_len(model),
    )
    batch.refuse_unknown_tokens(vocab_size(model))
    return batch
