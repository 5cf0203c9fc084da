"""Random batches of rollouts, as padded tensors for TRL and as flat columns for us."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from torch import Tensor

from headrace.errors import DataError
from headrace.rl.advantages import batch_advantages
from headrace_trainer.losses.aggregate import Normalization, token_weights
from headrace_trainer.losses.tokens import LossTokens


@dataclass(frozen=True)
class Padded:
    """B rollouts of T positions; `mask_BT` is 1 on sampled tokens (tool tokens and padding are 0)."""

    mask_BT: Tensor
    logprobs_BT: Tensor
    old_BT: Tensor
    behaviour_BT: Tensor
    reference_BT: Tensor
    advantages_B: Tensor

    def flat(self) -> tuple[LossTokens, Tensor, Tensor]:
        """Our columns over the same numbers, the leaf that carries the gradient, and the reference."""
        chosen = self.mask_BT.bool()
        leaf_N = self.logprobs_BT[chosen].clone().requires_grad_()
        rollout_N = chosen.nonzero()[:, 0]
        return (
            LossTokens(
                leaf_N,
                self.old_BT[chosen],
                self.behaviour_BT[chosen],
                self.advantages_B[rollout_N],
                rollout_N,
                len(self.mask_BT),
            ),
            leaf_N,
            self.reference_BT[chosen],
        )

    def weights(self, normalization: Normalization, constant_length: int = 1) -> Tensor:
        """Weight of each token, shape (N,), from the normaliser that training uses."""
        counts = [int(n) for n in self.mask_BT.sum(1)]
        rows = [(str(i), n) for i, n in enumerate(counts)]
        per_row = token_weights(rows, normalization, constant_length)
        return torch.repeat_interleave(
            torch.tensor(per_row, dtype=self.logprobs_BT.dtype), torch.tensor(counts)
        )


def make_batch(seed: int, dtype: torch.dtype) -> Padded:
    """Groups of two to four rollouts of 1 to 64 tokens, with tool stretches, truncation, equal groups, and
    negative rewards; one rollout in some batches is a group of its own and has advantage 0."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    groups = [_returns(draw) for _ in range(draw.randint(1, 4))]
    advantages = [a for group in groups for a in _advantages(group, draw)]
    lengths = [draw.choice([1, 2, 7, 33, 64]) for _ in advantages]
    mask_BT = torch.zeros(len(lengths), max(lengths), dtype=dtype)
    for row, length in enumerate(lengths):
        mask_BT[row, :length] = 1
        if length > 4 and draw.random() < 0.5:  # what a tool said
            start = draw.randrange(1, length - 1)
            mask_BT[row, start : start + draw.randint(1, length - start - 1)] = 0
    shape = mask_BT.shape
    logprobs_BT = -torch.rand(shape, dtype=dtype) * 5 - 1e-3
    spread = draw.choice([0.0, 0.05, 0.5, 2.0])
    # TRL multiplies by its mask, so what stands there has to be finite on both sides.
    return Padded(
        mask_BT,
        logprobs_BT,
        logprobs_BT + spread * torch.randn(shape, dtype=dtype),
        logprobs_BT + 0.3 * torch.randn(shape, dtype=dtype),
        logprobs_BT + 0.5 * torch.randn(shape, dtype=dtype),
        torch.tensor(advantages, dtype=dtype),
    )


def _returns(draw: random.Random) -> list[float]:
    n = draw.choice([1, 2, 3, 4])
    if draw.random() < 0.2:
        return [draw.choice([0.0, 1.0, -1.0])] * n
    return [draw.choice([-1.0, -0.5, 0.0, 0.25, 1.0]) for _ in range(n)]


def _advantages(returns: list[float], draw: random.Random) -> list[float]:
    try:
        return batch_advantages([returns], draw.choice(["grpo", "dr_grpo", "rloo"]))[0]
    except DataError:  # a group of one
        return [0.0] * len(returns)
