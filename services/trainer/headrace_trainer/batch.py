"""The rows of one optimiser batch, their weights in the loss, and how they split into micro-batches.

Rows of similar length share a micro-batch, padded on the right. With causal attention nothing
to the right of a token can reach it, so padding needs no attention mask and changes no value; a
packed row with a block-diagonal mask would give the same numbers at the price of attention over
the square of the whole budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
from torch import Tensor

from headrace.contracts.policy import PolicyVersion
from headrace.errors import DataError
from headrace.rl.sequences import Sequence as TokenSequence
from headrace_trainer.losses.aggregate import token_weights

Normalization = Literal["token", "sequence"]


@dataclass(frozen=True)
class Row:
    """One token row. Lists have one entry per token; T is the length."""

    source: str
    """What to name in an error: `rollout job_1.train.i0.g0.m0`, `line 7`."""
    unit: str
    """Rows of one unit (a rollout, a conversation) count as one where the loss averages units."""
    token_ids: Sequence[int]
    mask: Sequence[int]
    """1 on the tokens that are trained; never on the first."""
    behaviour_logprobs: Sequence[float] | None = None
    is_own_version: Sequence[bool] | None = None
    """Whether the weights being trained sampled the token; only those count for the mismatch."""
    temperature: float = 1.0
    advantage: float = 0.0
    token_weight: float = 0.0
    """Weight of each trained token in the loss; set for the whole batch at once."""

    @property
    def n_trainable(self) -> int:
        return sum(self.mask)


@dataclass(frozen=True)
class MicroBatch:
    """Rows of one forward pass. B rows, T padded length, N trained tokens in row-major order."""

    token_ids_BT: Tensor
    """int64, right-padded with 0."""
    row_N: Tensor
    """int64: row of each trained token."""
    position_N: Tensor
    """int64: its position; the hidden state one before predicts it."""
    target_N: Tensor
    """int64: the token itself."""
    temperature_N: Tensor
    behaviour_logprobs_N: Tensor
    """float32; 0 where the batch has none."""
    is_own_version_N: Tensor
    advantages_N: Tensor
    weights_N: Tensor
    """float32: share of each token in the loss of the whole optimiser batch."""

    @property
    def n_trainable(self) -> int:
        return int(self.target_N.numel())


@dataclass(frozen=True)
class TrainingBatch:
    """All rows of one optimiser batch, in the caller's order.

    The weight of every token is fixed here, over the whole batch, so the loss is the plain sum of
    weighted terms however the rows are split.
    """

    rows: tuple[Row, ...]

    @classmethod
    def of_rollouts(
        cls,
        items: Iterable[tuple[TokenSequence, float]],
        *,
        normalization: Normalization,
        max_model_len: int,
        is_own_version: Callable[[PolicyVersion], bool],
    ) -> Self:
        """Rows from (sequence, advantage), sorted by (group, member) by the caller.

        `is_own_version` tells whether a version's weights equal those about to be trained. Raises
        DataError, naming the rollout, for a row longer than `max_model_len` or an advantage that is
        not finite.
        """
        rows = []
        for sequence, advantage in items:
            own = [False] * len(sequence)
            for span in sequence.version_spans:
                own[span.start : span.end] = [is_own_version(span.version)] * (span.end - span.start)
            rows.append(
                Row(
                    source=f"rollout {sequence.rollout_id}",
                    unit=sequence.rollout_id,
                    token_ids=sequence.token_ids,
                    mask=sequence.mask,
                    behaviour_logprobs=sequence.behaviour_logprobs,
                    is_own_version=own,
                    temperature=sequence.temperature,
                    advantage=advantage,
                )
            )
        return cls.of_rows(rows, normalization=normalization, max_model_len=max_model_len)

    @classmethod
    def of_rows(cls, rows: Sequence[Row], *, normalization: Normalization, max_model_len: int) -> Self:
        """The same from rows; checks them and sets their weights."""
        for row in rows:
            _check(row, max_model_len)
        weights = token_weights([(row.unit, row.n_trainable) for row in rows], normalization)
        return cls(tuple(replace(row, token_weight=w) for row, w in zip(rows, weights, strict=True)))

    @property
    def n_trainable(self) -> int:
        return sum(row.n_trainable for row in self.rows)

    @property
    def n_nonzero_advantages(self) -> int:
        """Trainable tokens whose advantage is not zero: those that can move the weights."""
        return sum(row.n_trainable for row in self.rows if row.advantage != 0.0)

    def refuse_unknown_tokens(self, vocab_size: int) -> None:
        """Raise DataError, naming the row, for a token id that the model's embedding does not have."""
        for row in self.rows:
            if not 0 <= min(row.token_ids) <= max(row.token_ids) < vocab_size:
                raise DataError(
                    f"{row.source}: a token id lies outside the model's vocabulary of {vocab_size}"
                )

    def microbatches(self, max_tokens: int, device: torch.device | str = "cpu") -> list[MicroBatch]:
        """Micro-batches of at most `max_tokens` tokens, padding included; longest rows last.

        A row that is longer than the budget gets a micro-batch of its own. Rows without trainable
        tokens take no part. The split is a function of the rows' lengths and order alone.
        """
        trained = [row for row in self.rows if row.n_trainable]
        groups: list[list[Row]] = []
        for row in sorted(trained, key=lambda row: len(row.token_ids)):
            if groups and (len(groups[-1]) + 1) * len(row.token_ids) <= max_tokens:
                groups[-1].append(row)
            else:
                groups.append([row])
        return [_collate(group, device) for group in groups]


def _check(row: Row, max_model_len: int) -> None:
    if not len(row.token_ids) == len(row.mask) > 0:
        raise DataError(f"{row.source}: {len(row.token_ids)} tokens but {len(row.mask)} mask entries")
    if row.mask[0]:
        raise DataError(f"{row.source}: the first token is marked as trained, but no token precedes it")
    if len(row.token_ids) > max_model_len:
        raise DataError(
            f"{row.source}: {len(row.token_ids)} tokens exceed the model's {max_model_len}; "
            "shorten it, or lower the length of a reply or the number of turns"
        )
    if not math.isfinite(row.advantage):
        raise DataError(f"{row.source}: the advantage is {row.advantage}")


def _collate(rows: Sequence[Row], device: torch.device | str) -> MicroBatch:
    longest = max(len(row.token_ids) for row in rows)
    token_ids = torch.zeros(len(rows), longest, dtype=torch.int64)
    where: list[tuple[int, int]] = []
    for index, row in enumerate(rows):
        token_ids[index, : len(row.token_ids)] = torch.tensor(list(row.token_ids), dtype=torch.int64)
        where += [(index, position) for position, is_trained in enumerate(row.mask) if is_trained]
    row_N = torch.tensor([index for index, _ in where], dtype=torch.int64)
    position_N = torch.tensor([position for _, position in where], dtype=torch.int64)

    def column(value: Callable[[Row, int], float]) -> Tensor:
        values = [value(rows[index], position) for index, position in where]
        return torch.tensor(values, dtype=torch.float32, device=device)

    return MicroBatch(
        token_ids_BT=token_ids.to(device),
        row_N=row_N.to(device),
        position_N=position_N.to(device),
        target_N=token_ids[row_N, position_N].to(device),
        temperature_N=column(lambda row, _: row.temperature),
        behaviour_logprobs_N=column(
            lambda row, t: row.behaviour_logprobs[t] if row.behaviour_logprobs else 0.0
        ),
        is_own_version_N=column(lambda row, t: bool(row.is_own_version and row.is_own_version[t])) > 0,
        advantages_N=column(lambda row, _: row.advantage),
        weights_N=column(lambda row, _: row.token_weight),
    )
