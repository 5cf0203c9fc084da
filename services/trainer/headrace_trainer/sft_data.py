"""Conversations for SFT: chat JSONL to token rows, and which rows each step takes."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any

from headrace.errors import DataError, HeadraceError
from headrace.render import Renderer, assistant_spans


@dataclass(frozen=True)
class SftRow:
    """One conversation; `mask` is 1 on the tokens that the assistant says, its stop token included."""

    line: int
    """Line of the file, from 1."""
    token_ids: list[int]
    mask: list[int]


def load_conversations(content: bytes, renderer: Renderer, max_len: int) -> list[SftRow]:
    """Rows of a chat JSONL file (`{"messages": [...], "tools": [...]}` a line; empty lines are skipped).

    Raises DataError naming the line that is no conversation, has no assistant tokens, or renders
    to more than `max_len` tokens; and for a file without any.
    """
    rows = [
        _row(number, line, renderer, max_len)
        for number, line in enumerate(content.splitlines(), start=1)
        if line.strip()
    ]
    if not rows:
        raise DataError("the dataset holds no conversation; write one JSON object with `messages` a line")
    return rows


def _row(number: int, line: bytes, renderer: Renderer, max_len: int) -> SftRow:
    try:
        record: Any = json.loads(line)
    except ValueError as error:
        raise DataError(f"line {number}: not valid JSON ({error})") from error
    messages = record.get("messages") if isinstance(record, dict) else None
    if not isinstance(messages, list) or not messages:
        raise DataError(f"line {number}: needs `messages`, a list with at least one message")
    try:
        rendered = assistant_spans(renderer, messages, record.get("tools"))
    except HeadraceError as error:
        raise DataError(f"line {number}: {error.message}") from error
    token_ids, mask = [int(token) for token in rendered.token_ids], [int(bit) for bit in rendered.mask]
    if len(token_ids) > max_len:
        raise DataError(
            f"line {number}: {len(token_ids)} tokens, but [hyperparameters] sequence_length (or the model) "
            f"allows {max_len}; shorten or remove the conversation"
        )
    if not any(mask):
        raise DataError(f"line {number}: no assistant tokens to learn from; add an assistant message")
    return SftRow(number, token_ids, mask)


def steps_per_epoch(n_rows: int, batch_size: int) -> int:
    """Optimiser steps of one pass over the rows; the last may hold fewer rows."""
    return -(-n_rows // batch_size)


def rows_of_step(n_rows: int, batch_size: int, seed: int, step: int) -> list[int]:
    """Indices of the rows of optimiser step `step` (from 1), a pure function, so a resume needs the step only.

    Each epoch takes every row once, in an order of its own.
    """
    epoch, offset = divmod(step - 1, steps_per_epoch(n_rows, batch_size))
    order = list(range(n_rows))
    random.Random(f"{seed}/{epoch}").shuffle(order)
    return order[offset * batch_size : (offset + 1) * batch_size]
