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
from headrace_trainer.losses.importance import ImportanceSums, importance_weights
from headrace_trainer.losses.kl import kl_per_token
from headrace_trainer.losses.mismatch import MismatchSums, mismatch
from headrace_trainer.losses.ratios import RatioSums, ratio_sums
from headrace_trainer.losses.tokens import LossFunction, LossTokens
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
    loss: LossFunction,
    step: int,
    reference: torch.nn.Module | None = None,
    between: Callable[[], None] = _nothing,
) -> StepMetrics:
    """Train on one batch, `config.updates_per_batch` times.

    `step` is the number of optimiser steps taken before (0 at the start); it sets the learning
    rate. The first pass gives the old logprobs, the denominator of the ratio, since the weights
    do not move before its end; so with one update the ratio is exactly 1 and nothing is clipped.
    `reference` is the frozen model of the KL term, needed where `config.kl_coef` is not 0.
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
    run = _Updates(model, microbatches, config, loss, _reference_logprobs(reference, microbatches), between)
    optimizer.zero_grad(set_to_none=True)
    grad_norms, learning_rate = [], 0.0
    for update in range(config.updates_per_batch):
        run.forward_backward()
        learning_rate = learning_rate_at(
            step + update + 1, peak=config.learning_rate, warmup_steps=config.warmup_steps
        )
        grad_norms.append(
            clip_and_step(model, optimizer, learning_rate=learning_rate, max_grad_norm=config.max_grad_norm)
        )
    metrics = _metrics(run.passes, grad_norms) | {"train.learning_rate": learning_rate}
    return StepMetrics(counts | metrics, config.updates_per_batch)


def device_of(model: torch.nn.Module) -> torch.device:
    return next(model.parameters()).device


@torch.no_grad()
def _reference_logprobs(
    reference: torch.nn.Module | None, microbatches: list[MicroBatch]
) -> list[Tensor] | None:
    """log p of the trained tokens under the frozen model, per micro-batch."""
    if reference is None:
        return None
    return [sampled_logprobs(reference, microbatch)[0] for microbatch in microbatches]


@dataclass(frozen=True)
class _Pass:
    """One forward and backward pass over the whole batch."""

    loss: float
    entropy: float
    kl: float | None
    ratios: RatioSums
    importance: ImportanceSums
    mismatch: MismatchSums


class _Updates:
    """The passes over one batch; the first one's logprobs are the old ones of all."""

    def __init__(
        self,
        model: torch.nn.Module,
        microbatches: list[MicroBatch],
        config: Training,
        loss: LossFunction,
        reference: list[Tensor] | None,
        between: Callable[[], None],
    ) -> None:
        self._model, self._microbatches, self._config = model, microbatches, config
        self._loss, self._reference, self._between = loss, reference, between
        self._old: list[Tensor] = []
        self.passes: list[_Pass] = []

    def forward_backward(self) -> None:
        loss, entropy_sum, kl_sum = 0.0, 0.0, 0.0
        ratios, importance, gaps = RatioSums(), ImportanceSums(), MismatchSums()
        for index, microbatch in enumerate(self._microbatches):
            self._between()
            logprobs_N, entropy_N = sampled_logprobs(self._model, microbatch, with_entropy=True)
            assert entropy_N is not None
            if len(self._old) == index:
                self._old.append(logprobs_N.detach())
            tokens = LossTokens(
                logprobs_N, self._old[index], microbatch.behaviour_logprobs_N,
                microbatch.advantages_N, microbatch.rollout_N, microbatch.n_rollouts,
            )  # fmt: skip
            terms_N, sums, weights = self._policy_terms(tokens)
            if self._reference is not None:
                kl_N = kl_per_token(logprobs_N, self._reference[index], self._config.kl_estimator)
                kl_sum += float(kl_N.detach().double().sum())
                terms_N = terms_N + self._config.kl_coef * kl_N
            part = (microbatch.weights_N * terms_N).sum()
            refuse_non_finite("loss", float(part.detach()))
            part.backward()
            loss += float(part.detach())
            entropy_sum += float(entropy_N.double().sum())
            ratios, importance = ratios + sums, importance + weights
            gaps += mismatch(
                logprobs_N.detach(), microbatch.behaviour_logprobs_N, microbatch.is_own_version_N
            )
        n = ratios.n_tokens
        kl = kl_sum / n if self._reference is not None else None
        if not self.passes:
            _refuse_gross_mismatch(gaps, self._config.max_logprob_mismatch)
        self.passes.append(_Pass(loss, entropy_sum / n, kl, ratios, importance, gaps))

    def _policy_terms(self, tokens: LossTokens) -> tuple[Tensor, RatioSums, ImportanceSums]:
        """The loss of each token, weighted for who sampled it; the weights come before any KL term."""
        config, found = self._config, self._loss(tokens)
        weights_N, sums = importance_weights(
            tokens, config.importance, low=config.importance_low, high=config.importance_high
        )
        terms_N = found.loss_N if config.importance == "none" else weights_N * found.loss_N
        return terms_N, ratio_sums(tokens, found), sums


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
        "train.ratio_min": ratios.ratio_min,
        "train.ratio_max": ratios.ratio_max,
    }
    if passes[0].kl is not None:
        metrics["train.kl"] = passes[0].kl
    importance = passes[0].importance
    metrics |= {
        "importance.mean": importance.weight_sum / importance.n_tokens,
        "importance.max": importance.weight_max,
        "importance.held_share": importance.n_held / importance.n_tokens,
        "importance.effective_share": importance.effective_share,
    }
    if gaps.n_tokens:
        metrics |= {
            "mismatch.k3": gaps.k3,
            "mismatch.max_abs": gaps.abs_max,
            "mismatch.mean_abs": gaps.mean_abs,
        }
    return metrics
