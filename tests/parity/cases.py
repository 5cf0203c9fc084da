"""Each loss of ours beside the one it has to equal, and the worst relative error over random batches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from tests.parity import numpy_loss
from tests.parity.batches import Padded, make_batch
from tests.parity.trl_loss import trl_loss
from torch import Tensor

from headrace_trainer.losses.aggregate import Normalization
from headrace_trainer.losses.cispo import cispo
from headrace_trainer.losses.dppo import dppo
from headrace_trainer.losses.gspo import gspo
from headrace_trainer.losses.importance import Correction, importance_weights
from headrace_trainer.losses.kl import Estimator, kl_per_token
from headrace_trainer.losses.ppo import ppo_clip
from headrace_trainer.losses.sapo import sapo
from headrace_trainer.losses.tokens import LossFunction

Pair = tuple[Tensor, Tensor]
"""A loss and its gradient by trained token, shape (N,)."""
Case = Callable[[Padded], tuple[Pair, Pair, float]]
"""Ours, the other's, and the sum of the absolute terms behind the loss: what its rounding is measured by,
since positive and negative advantages may cancel to a loss near zero."""
clip = partial(ppo_clip, clip_low=0.2, clip_high=0.28)


def ours(
    batch: Padded,
    function: LossFunction,
    normalization: Normalization,
    constant_length: int = 1,
    beta: float = 0.0,
    correction: Correction = "none",
    bounds: tuple[float, float] = (0.5, 2.0),
    estimator: Estimator = "k3",
) -> tuple[Pair, float]:
    tokens, leaf_N, reference_N = batch.flat()
    terms_N = function(tokens).loss_N
    terms_N = importance_weights(tokens, correction, low=bounds[0], high=bounds[1])[0] * terms_N
    if beta:
        terms_N = terms_N + beta * kl_per_token(leaf_N, reference_N, estimator)
    weighted_N = batch.weights(normalization, constant_length) * terms_N
    loss = weighted_N.sum()
    (gradient_N,) = torch.autograd.grad(loss, leaf_N)
    return (loss.detach(), gradient_N), float(weighted_N.detach().abs().sum())


def against_trl(ours_of: Callable[[Padded], tuple[Pair, float]], **trl: object) -> Case:
    def case(batch: Padded) -> tuple[Pair, Pair, float]:
        loss, gradient_BT = trl_loss(batch, **trl)  # type: ignore[arg-type]
        chosen = batch.mask_BT.bool()
        assert not gradient_BT[~chosen].any()
        found, size = ours_of(batch)
        return found, (loss, gradient_BT[chosen]), size

    return case


def against_numpy(
    function: LossFunction,
    terms: Callable[..., object],
    correction: Correction = "none",
    bounds: tuple[float, float] = (0.5, 2.0),
) -> Case:
    """The gradient of the NumPy value is taken by central differences, so only fp64 is compared."""

    def case(batch: Padded) -> tuple[Pair, Pair, float]:
        tokens, _, _ = batch.flat()
        lp, old, behaviour, a = (
            column.detach().double().numpy().copy()
            for column in (
                tokens.logprobs_N, tokens.old_logprobs_N, tokens.behaviour_logprobs_N, tokens.advantages_N
            )
        )  # fmt: skip
        w = batch.weights("token").double().numpy()
        if correction != "none":
            w = w * numpy_loss.importance(old, behaviour, tokens.rollout_N.numpy(), correction, *bounds)
        value = torch.tensor(float((w * terms(lp, old, behaviour, a)).sum()))  # type: ignore[operator]
        h = 1e-6
        slope = w * (terms(lp + h, old, behaviour, a) - terms(lp - h, old, behaviour, a)) / (2 * h)  # type: ignore[operator]
        found, size = ours(batch, function, "token", correction=correction, bounds=bounds)
        return found, (value, torch.from_numpy(slope)), size

    return case


def trl_importance(batch: Padded) -> Tensor:
    return (batch.old_BT - batch.behaviour_BT).exp().clamp(max=2.0)


TRL_CASES: dict[str, Case] = {
    "grpo": against_trl(lambda b: ours(b, clip, "sequence"), loss_type="grpo"),
    "dapo": against_trl(lambda b: ours(b, clip, "token"), loss_type="dapo"),
    "bnpo": against_trl(lambda b: ours(b, clip, "microbatch"), loss_type="bnpo"),
    "dr_grpo": against_trl(lambda b: ours(b, clip, "constant", 64), loss_type="dr_grpo"),
    "two-sided": against_trl(
        lambda b: ours(b, partial(clip, ratio_cap=1.5), "token"), loss_type="dapo", delta=1.5
    ),
    "cispo": against_trl(
        lambda b: ours(b, partial(cispo, ratio_cap=5.0), "token"), loss_type="cispo", epsilon_high=5.0
    ),
    "sapo": against_trl(
        lambda b: ours(b, partial(sapo, temperature_positive=1.0, temperature_negative=1.05), "sequence"),
        loss_type="sapo",
    ),
    "gspo": against_trl(
        lambda b: ours(b, partial(gspo, clip_low=3e-4, clip_high=4e-4), "sequence"),
        loss_type="grpo", level="sequence", epsilon_low=3e-4, epsilon_high=4e-4,
    ),
    "beta": against_trl(lambda b: ours(b, clip, "token", beta=0.04), loss_type="dapo", beta=0.04),
    "importance": lambda b: against_trl(
        lambda b: ours(b, clip, "token", correction="token", beta=0.04),
        loss_type="dapo", beta=0.04, importance_BT=trl_importance(b),
    )(b),
}  # fmt: skip

NUMPY_CASES: dict[str, Case] = {
    "dppo": against_numpy(
        partial(dppo, max_shift=0.2, pull=1e-3),
        lambda lp, old, behaviour, a: numpy_loss.dppo(lp, behaviour, a, 0.2, 1e-3),
    ),
    "dual_clip": against_numpy(
        partial(clip, dual_clip=3.0),
        lambda lp, old, behaviour, a: numpy_loss.dual_clip(lp, old, a, 0.2, 0.28, 3.0),
    ),
    **{
        correction: against_numpy(
            partial(clip, dual_clip=3.0),
            lambda lp, old, behaviour, a: numpy_loss.dual_clip(lp, old, a, 0.2, 0.28, 3.0),
            correction,  # type: ignore[arg-type]
            bounds,
        )
        for correction, bounds in {
            "token_mask": (0.5, 2.0), "sequence": (0.5, 2.0), "sequence_mask": (0.1, 9.0),
            "geometric_mask": (0.9, 1.1),
        }.items()
    },
}  # fmt: skip


def error(found: Pair, expected: Pair, size: float) -> float:
    """The larger relative error of loss and gradient: the loss against `size`, the gradient against its largest
    entry."""
    of_loss = abs(float(found[0]) - float(expected[0])) / max(size, 1e-6)
    gap_N = (found[1].double() - expected[1].double()).abs()
    return max(of_loss, float(gap_N.max()) / max(float(expected[1].abs().max()), 1e-6))


def worst_error(name: str, n_batches: int, dtype: torch.dtype) -> float:
    """Over batches 0 to n - 1; those of a loss that TRL lacks in fp64 only."""
    case = (TRL_CASES | NUMPY_CASES)[name]
    return max(error(*case(make_batch(seed, dtype))) for seed in range(n_batches))
