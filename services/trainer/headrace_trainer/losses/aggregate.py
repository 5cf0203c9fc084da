"""How much each token weighs in the loss: the one normaliser."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

Normalization = Literal["token", "sequence", "sequence_sum", "constant", "microbatch"]


def token_weights(
    rows: Sequence[tuple[str, int]], normalization: Normalization, constant_length: int = 1
) -> list[float]:
    """Weight of each trained token of each row, from (unit, n trained tokens) of the whole batch.

    A unit (a rollout, a conversation) counts once however many rows it has; units without trained
    tokens count in no denominator. With N all trained tokens of the optimiser batch, U its units and
    n_u the tokens of one:

    `token`: 1 / N (Yu et al. 2025, DAPO, eq. 8). `sequence`: 1 / (U n_u), the mean of unit means
    (Shao et al. 2024, GRPO). `sequence_sum`: 1 / U. `constant`: 1 / (U L) with L `constant_length` (Liu
    et al. 2025, Dr. GRPO). `microbatch`: as `token`; the split puts 1 / (M N_m) in its place for M
    micro-batches of N_m tokens (BNPO as in TRL), which is the one normaliser that depends on the split.
    No later step may divide again.

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
    if not n_total:
        return [0.0] * len(rows)
    match normalization:
        case "token" | "microbatch":
            return [1 / n_total] * len(rows)
        case "sequence":
            return [1 / (n_units * tokens_of[unit]) if tokens_of[unit] else 0.0 for unit, _ in rows]
        case "sequence_sum":
            return [1 / n_units] * len(rows)
        case "constant":
            return [1 / (n_units * constant_length)] * len(rows)
