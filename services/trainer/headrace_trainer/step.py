"""One RL optimiser batch: forward, mismatch check, loss, backward, step."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from headrace.config.rl import Training
from headrace.errors import JobFailed
from headrace_trainer.batch import MicroBatch, TrainingBatch
from headrace_trainer.logprobs import sampled_logprobs
from headrace_trainer.losses.grpo import RatioSums, clipped_policy_loss
from headrace_trainer.losses.mismatch import MismatchSums, mismatch
from headrace_trainer.model import vocab_size
from headrace_trainer.optimizer import clip_and_step, learning_rate_at


@dataclass(frozen=True)
class StepMetrics:
    """What a batch did. `metrics` has the project's metric names; a value that was not measured is absent."""

    metrics: dict[str, float]
    n_optimizer_steps: int
    """0 when there was nothing to learn from; the weights are then untouched."""
    skipped_reason: str | None = None


def _nothing() -> None:
    return None


def rl_step(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: TrainingBatch,
    config: Training,
    *,
    step: int,
    between: Callable[[], None] = _nothing,
) -> StepMetrics:
    """Train on one batch, `config.updates_per_batch` times.

    `step` is the number of optimiser steps taken before (0 at the start); it sets the learning
    rate. The first pass gives the old logprobs, the denominator of the ratio, since the weights
    do not move before its end; so with one update the ratio is exactly 1 and nothing is clipped.
    `between` is called before each micro-batch and may raise to stop (the gradient so far is
    dropped, the weights are those of the last whole step).
    Without trainable tokens, or with all advantages zero, no step is taken: momentum and decay
    would move the weights on no evidence.
    Raises JobFailed when the loss or the gradient is not finite, or when the trainer's logprobs of
    its own version's tokens differ from the engine's by more than `config.max_logprob_mismatch` on
    average; and DataError for a token that the model does not have. The weights do not move then.
    """
    counts = {
        "train.trainable_tokens": float(batch.n_trainable),
        "train.nonzero_advantages": float(batch.n_nonzero_advantages),
    }
    if not batch.n_trainable:
        return StepMetrics(counts, 0, "the batch holds no trainable token")
    if not batch.n_nonzero_advantages:
        return StepMetrics(counts, 0, "all advantages are zero")
    batch.refuse_unknown_tokens(vocab_size(model))
    microbatches = batch.microbatches(config.max_tokens_per_microbatch, device_of(model))
    optimizer.zero_grad(set_to_none=True)
    old, passes, grad_norms, learning_rate = None, [], [], 0.0
    for update in range(config.updates_per_batch):
        one = _forward_backward(model, microbatches, old, config, between)
        if old is None:
            old = one.logprobs
            _refuse_gross_mismatch(one.mismatch, config.max_logprob_mismatch)
        passes.append(one)
        learning_rate = learning_rate_at(
            step + update + 1, peak=config.learning_rate, warmup_steps=config.warmup_steps
        )
        grad_norms.append(
            clip_and_step(model, optimizer, learning_rate=learning_rate, max_grad_norm=config.max_grad_norm)
        )
    metrics = _metrics(passes, grad_norms) | {"train.learning_rate": learning_rate}
    return StepMetrics(counts | metrics, config.updates_per_batch)


def device_of(model: torch.nn.Module) -> torch.device:
    return next(model.parameters()).device


@dataclass(frozen=True)
class _Pass:
    """One forward and backward pass over the whole batch."""

    loss: float
    entropy: float
    ratios: RatioSums
    mismatch: MismatchSums
    logprobs: list[Tensor]
    """Per micro-batch, without gradient."""


def _forward_backward(
    model: torch.nn.Module,
    microbatches: list[MicroBatch],
    old: list[Tensor] | None,
    config: Training,
    between: Callable[[], None],
) -> _Pass:
    loss, entropy_sum, ratios, gaps, kept = 0.0, 0.0, RatioSums(), MismatchSums(), []
    for index, microbatch in enumerate(microbatches):
        between()
        logprobs_N, entropy_N = sampled_logprobs(model, microbatch, with_entropy=True)
        assert entropy_N is not None
        kept.append(logprobs_N.detach())
        part, sums = clipped_policy_loss(
            logprobs_N,
            kept[index] if old is None else old[index],
            microbatch.advantages_N,
            microbatch.weights_N,
            clip_low=config.clip_low,
            clip_high=config.clip_high,
        )
        refuse_non_finite("loss", float(part.detach()))
        part.backward()
        loss += float(part.detach())
        entropy_sum += float(entropy_N.double().sum())
        ratios += sums
        gaps += mismatch(kept[index], microbatch.behaviour_logprobs_N, microbatch.is_own_version_N)
    return _Pass(loss, entropy_sum / ratios.n_tokens, ratios, gaps, kept)


def refuse_non_finite(name: str, value: float) -> None:
    """Raise JobFailed when a value that is about to reach the weights is NaN or infinite."""
    if not math.isfinite(value):
        raise JobFailed(
            f"the {name} is {value}, so no step was taken; lower the learning rate or look at this "
            "batch's data"
        )


def _refuse_gross_mismatch(gaps: MismatchSums, limit: float) -> None:
    if gaps.n_tokens and not gaps.mean_abs <= limit:
        raise JobFailed(
            f"the trainer's logprobs differ from the engine's by {gaps.mean_abs:.4g} on average over "
            f"{gaps.n_tokens} sampled tokens (max {gaps.abs_max:.4g}), above [training] max_logprob_mismatch "
            f"= {limit:g}, so no step was taken; check that both hold the same weights, dtype and temperature"
        )


def _metrics(passes: list[_Pass], grad_norms: list[float]) -> dict[str, float]:
    """Means over the updates; ratios and clip fractions over all their tokens; mismatch of the first."""
    ratios, gaps = sum((one.ratios for one in passes), RatioSums()), passes[0].mismatch
    metrics = {
        "train.loss": math.fsum(one.loss for one in passes) / len(passes),
        "train.grad_norm": math.fsum(grad_norms) / len(grad_norms),
        "train.entropy": passes[0].entropy,
        "train.clip_low": ratios.n_clipped_low / ratios.n_tokens,
        "train.clip_high": ratios.n_clipped_high / ratios.n_tokens,
        "train.ratio_mean": ratios.ratio_sum / ratios.n_tokens,
        "train.ratio_max": ratios.ratio_max,
    }
    if gaps.n_tokens:
        metrics |= {
            "mismatch.k3": gaps.k3,
            "mismatch.max_abs": gaps.abs_max,
            "mismatch.mean_abs": gaps.mean_abs,
        }
    return metrics
