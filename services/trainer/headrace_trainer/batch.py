"""The rows of one optimiser batch, their weights in the loss, and how they split into micro-batches.

Rows of similar length share a micro-batch, padded on the right. With causal attention nothing
to the right of a token can reach it, so padding needs no attention mask and changes no value; a
packed row with a block-diagonal mask would give the same numbers at the price of attention over
the square of the whole budget. A rollout's rows stay together, since some losses have one ratio per
rollout.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from headrace.contracts.policy import PolicyVersion
from headrace.errors import DataError
from headrace.rl.sequences import Sequence as TokenSequence
from headrace_trainer.losses.aggregate import Normalization, token_weights


@dataclass(frozen=True)
class Row:
    """One token row. Columns have one entry per token; T is the length."""

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
    advantage: float | Sequence[float] = 0.0
    """One for the whole row, or one per token (what stands at masked positions is never read)."""
    token_weight: float = 0.0
    """Weight of each trained token in the loss; set for the whole batch at once."""

    @property
    def n_trainable(self) -> int:
        return sum(self.mask)

    @property
    def trained_advantages(self) -> np.ndarray:
        """float64 advantage of each trained token."""
        if isinstance(self.advantage, int | float):
            return np.full(self.n_trainable, self.advantage, dtype=np.float64)
        return np.asarray(self.advantage, dtype=np.float64)[_positions(self)]


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
    rollout_N: Tensor
    """int64: its unit, counted from 0 within the micro-batch."""
    n_rollouts: int
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
    weighted terms however the rows are split (but for `microbatch`, whose definition is the split).
    """

    rows: tuple[Row, ...]
    normalization: Normalization = "token"

    @classmethod
    def of_rollouts(
        cls,
        items: Iterable[tuple[TokenSequence, float | dict[int, float]]],
        *,
        normalization: Normalization,
        max_model_len: int,
        is_own_version: Callable[[PolicyVersion], bool],
        constant_length: int = 1,
    ) -> Self:
        """Rows from (sequence, advantage of the rollout or of each of its calls), sorted by the caller.

        `is_own_version` tells whether a version's weights equal those about to be trained. Raises
        DataError, naming the rollout, for a row longer than `max_model_len` or an advantage that is
        not finite or missing for a call.
        """
        rows = []
        for sequence, advantage in items:
            own = np.zeros(len(sequence), dtype=bool)
            for span in sequence.version_spans:
                own[span.start : span.end] = is_own_version(span.version)
            rows.append(
                Row(
                    source=f"rollout {sequence.rollout_id}",
                    unit=sequence.rollout_id,
                    token_ids=sequence.token_ids,
                    mask=sequence.mask,
                    behaviour_logprobs=sequence.behaviour_logprobs,
                    is_own_version=own,  # type: ignore[arg-type]
                    temperature=sequence.temperature,
                    advantage=_by_call(sequence, advantage) if isinstance(advantage, dict) else advantage,
                )
            )
        return cls.of_rows(
            rows, normalization=normalization, max_model_len=max_model_len, constant_length=constant_length
        )

    @classmethod
    def of_rows(
        cls,
        rows: Sequence[Row],
        *,
        normalization: Normalization,
        max_model_len: int,
        constant_length: int = 1,
    ) -> Self:
        """The same from rows; checks them and sets their weights."""
        for row in rows:
            _check(row, max_model_len)
        weights = token_weights([(row.unit, row.n_trainable) for row in rows], normalization, constant_length)
        weighted = (replace(row, token_weight=w) for row, w in zip(rows, weights, strict=True))
        return cls(tuple(weighted), normalization)

    @property
    def n_trainable(self) -> int:
        return sum(row.n_trainable for row in self.rows)

    @property
    def n_nonzero_advantages(self) -> int:
        """Trainable tokens whose advantage is not zero: those that can move the weights."""
        return sum(int(np.count_nonzero(row.trained_advantages)) for row in self.rows)

    def refuse_unknown_tokens(self, vocab_size: int) -> None:
        """Raise DataError, naming the row, for a token id that the model's embedding does not have."""
        for row in self.rows:
            if not 0 <= min(row.token_ids) <= max(row.token_ids) < vocab_size:
                raise DataError(
                    f"{row.source}: a token id lies outside the model's vocabulary of {vocab_size}"
                )

    def microbatches(self, max_tokens: int, device: torch.device | str = "cpu") -> list[MicroBatch]:
        """Micro-batches of at most `max_tokens` tokens, padding included; longest rows last.

        A unit's rows are never split; one that is longer than the budget gets a micro-batch of its own.
        Rows without trainable tokens take no part. The split is a function of the rows' lengths and
        order alone.
        """
        units: dict[str, list[Row]] = {}
        for row in self.rows:
            if row.n_trainable:
                units.setdefault(row.unit, []).append(row)
        groups: list[list[Row]] = []
        for rows in sorted(units.values(), key=_longest):  # stable: ties keep the caller's order
            if groups and (len(groups[-1]) + len(rows)) * _longest(rows) <= max_tokens:
                groups[-1] += rows
            else:
                groups.append(list(rows))
        if self.normalization == "microbatch":
            groups = [_weighed_alone(group, len(groups)) for group in groups]
        return [_collate(group, device) for group in groups]


def _longest(rows: Sequence[Row]) -> int:
    return max(len(row.token_ids) for row in rows)


def _weighed_alone(rows: Sequence[Row], n_microbatches: int) -> list[Row]:
    weight = 1 / (n_microbatches * sum(row.n_trainable for row in rows))
    return [replace(row, token_weight=weight) for row in rows]


def _by_call(sequence: TokenSequence, advantage_of_call: dict[int, float]) -> list[float]:
    try:
        return [advantage_of_call[call] if call >= 0 else 0.0 for call in sequence.call_of_token]
    except KeyError as error:
        raise DataError(f"rollout {sequence.rollout_id}: call {error} was given no advantage") from None


def _positions(row: Row) -> np.ndarray:
    """int64 positions of the trained tokens."""
    mask = np.frombuffer(row.mask, np.uint8) if isinstance(row.mask, bytes) else np.asarray(row.mask)
    return np.flatnonzero(mask)


def _check(row: Row, max_model_len: int) -> None:
    _check_columns(row)
    if row.mask[0]:
        raise DataError(f"{row.source}: the first token is marked as trained, but no token precedes it")
    if len(row.token_ids) > max_model_len:
        raise DataError(
            f"{row.source}: {len(row.token_ids)} tokens exceed the model's {max_model_len}; "
            "shorten it, or lower the length of a reply or the number of turns"
        )
    if not (math.isfinite(row.temperature) and row.temperature > 0):
        raise DataError(f"{row.source}: the temperature is {row.temperature}")
    advantages = row.trained_advantages
    if not np.isfinite(advantages).all():
        raise DataError(f"{row.source}: the advantage is {advantages[~np.isfinite(advantages)][0]}")
    if row.behaviour_logprobs is not None:
        logprobs = np.asarray(row.behaviour_logprobs, dtype=np.float64)[_positions(row)]
        if not np.isfinite(logprobs).all():
            raise DataError(f"{row.source}: a trained token has no finite logprob")


def _check_columns(row: Row) -> None:
    advantages = None if isinstance(row.advantage, int | float) else row.advantage
    for name, column in (
        ("mask entries", row.mask),
        ("logprobs", row.behaviour_logprobs),
        ("versions", row.is_own_version),
        ("advantages", advantages),
    ):
        if column is not None and len(column) != len(row.token_ids):
            raise DataError(f"{row.source}: {len(row.token_ids)} tokens but {len(column)} {name}")
    if not len(row.token_ids):
        raise DataError(f"{row.source}: the row is empty")


def _collate(rows: Sequence[Row], device: torch.device | str) -> MicroBatch:
    token_ids_BT = np.zeros((len(rows), _longest(rows)), dtype=np.int64)
    positions = [_positions(row) for row in rows]
    for index, row in enumerate(rows):
        token_ids_BT[index, : len(row.token_ids)] = np.asarray(row.token_ids)
    counts = [len(position) for position in positions]
    row_N, position_N = np.repeat(np.arange(len(rows)), counts), np.concatenate(positions)
    number_of_unit = {unit: n for n, unit in enumerate(dict.fromkeys(row.unit for row in rows))}

    def tensor(values: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(device)

    def column(pick: Callable[[Row], Sequence[Any] | None]) -> np.ndarray:
        """float32 of the trained tokens of every row; 0 where a row lacks the column."""
        parts = []
        for row, at in zip(rows, positions, strict=True):
            values = pick(row)
            parts.append(np.zeros(len(at)) if values is None else np.asarray(values, dtype=np.float64)[at])
        return np.concatenate(parts).astype(np.float32)

    def per_row(values: Sequence[float]) -> np.ndarray:
        return np.repeat(np.asarray(values, dtype=np.float32), counts)

    return MicroBatch(
        token_ids_BT=tensor(token_ids_BT),
        row_N=tensor(row_N),
        position_N=tensor(position_N),
        target_N=tensor(token_ids_BT[row_N, position_N]),
        rollout_N=tensor(np.repeat([number_of_unit[row.unit] for row in rows], counts)),
        n_rollouts=len(number_of_unit),
        temperature_N=tensor(per_row([row.temperature for row in rows])),
        behaviour_logprobs_N=tensor(column(lambda row: row.behaviour_logprobs)),
        is_own_version_N=tensor(column(lambda row: row.is_own_version) > 0),
        advantages_N=tensor(np.concatenate([row.trained_advantages for row in rows]).astype(np.float32)),
        weights_N=tensor(per_row([row.token_weight for row in rows])),
    )
