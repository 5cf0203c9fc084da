"""How much each token weighs in the loss: the one normaliser."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal


def token_weights(
    rows: Sequence[tuple[str, int]], normalization: Literal["token", "sequence"]
) -> list[float]:
    """Weight of each trained token of each row, from (unit, n trained tokens) of the whole batch.

    `token`: 1 / N, N all trained tokens of the optimiser batch (Yu et al. 2025, DAPO, eq. 8).
    `sequence`: the mean of unit means, 1 / (U n_u), where a unit (a rollout) counts once however
    many rows it has and n_u are its tokens in all of them. Units without trained tokens count in
    neither. The weights of a batch's tokens sum to 1; no later step may divide again.

    >>> token_weights([("a", 1), ("b", 3)], "token")
    [0.25, 0.25]
    >>> token_weights([("a", 1), ("b", 3), ("a", 1)], "sequence")
    [0.25, 0.16666666666666666, 0.25]
    """
    tokens_of: Counter[str] = Counter()
    for unit, n_tokens in rows:
        tokens_of[unit] += n_tokens
    n_total = sum(tokens_of.values())
    n_units = sum(n > 0 for n in tokens_of.values())
    if normalization == "token":
        return [1 / n_total if n_total else 0.0] * len(rows)
    return [1 / (n_units * tokens_of[unit]) if tokens_of[unit] else 0.0 for unit, _ in rows]
