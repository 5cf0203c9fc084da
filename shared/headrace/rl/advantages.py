"""Advantages of the rollouts of one iteration, group by group, in float64."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from headrace.errors import DataError

Baseline = Literal["grpo", "dr_grpo", "rloo", "reinforce_pp", "maxrl"]

STD_EPSILON = 1e-4
"""Added to the standard deviation, as in TRL."""
ZERO_VARIANCE = 1e-8
"""Returns that differ by no more than this are one return."""


def batch_advantages(groups: Sequence[Sequence[float]], kind: Baseline) -> list[list[float]]:
    """Advantages from the returns of each group's scored members, in order; a zero-variance group gets zeros.

    `grpo`: (R - mean) / (std + 1e-4) of the group, sample standard deviation (Shao et al. 2024,
    DeepSeekMath, 4.1.2; constants as in TRL). `dr_grpo`: R - mean (Liu et al. 2025, Understanding
    R1-Zero-Like Training). `rloo`: R minus the mean of the other members (Ahmadian et al. 2024).
    `reinforce_pp`: R - mean, then divided by the standard deviation of all these over the batch (Hu et
    al. 2025, REINFORCE++ with a group baseline). `maxrl`: (R - mean) / mean, 0 where the mean is 0
    (maximum-likelihood RL, for returns of at least 0).
    Raises DataError for a group of fewer than two members, a return that is not finite, or a negative
    one under `maxrl`.

    >>> batch_advantages([[1.0, 0.0], [2.0, 2.0]], "dr_grpo")
    [[0.5, -0.5], [0.0, 0.0]]
    >>> batch_advantages([[1.0, 0.0, 0.0, 1.0]], "maxrl")
    [[1.0, -1.0, -1.0, 1.0]]
    """
    if kind == "reinforce_pp":
        return _whitened([group_advantages(returns, "dr_grpo") for returns in groups])
    return [group_advantages(returns, kind) for returns in groups]


def group_advantages(
    returns: Sequence[float], kind: Literal["grpo", "dr_grpo", "rloo", "maxrl"]
) -> list[float]:
    """Advantages A_G from returns R_G of one group, as `batch_advantages` defines them."""
    _check(returns, kind)
    if is_zero_variance(returns):
        return [0.0] * len(returns)
    mean = math.fsum(value / len(returns) for value in returns)
    centred = [value - mean for value in returns]
    match kind:
        case "dr_grpo":
            return centred
        case "rloo":
            return [value * len(returns) / (len(returns) - 1) for value in centred]
        case "maxrl":
            return [value / mean for value in centred] if mean else [0.0] * len(returns)
        case "grpo":
            std = _spread(centred, len(returns) - 1)
            return [value / (std + STD_EPSILON) for value in centred]


def is_zero_variance(returns: Sequence[float]) -> bool:
    """Whether the members cannot be told apart: all returns within 1e-8."""
    return max(returns) - min(returns) <= ZERO_VARIANCE


def _check(returns: Sequence[float], kind: str) -> None:
    if len(returns) < 2:
        raise DataError(
            f"a group with {len(returns)} scored member(s) has no baseline; replace the group, do not train on it"
        )
    if not all(map(math.isfinite, returns)):
        raise DataError(f"returns {list(returns)} of a group are not all finite")
    if kind == "maxrl" and min(returns) < 0:
        raise DataError(f'advantage = "maxrl" needs returns of at least 0, and a group has {min(returns):g}')


def _whitened(centred: list[list[float]]) -> list[list[float]]:
    """Group-centred values over the batch's standard deviation about their mean of 0."""
    values = [value for group in centred for value in group]
    std = _spread(values, max(len(values) - 1, 1)) if values else 0.0
    return [[value / (std + STD_EPSILON) for value in group] for group in centred]


def _spread(centred: Sequence[float], n: int) -> float:
    """sqrt(sum of squares / n), scaled so that squares of huge or tiny values neither overflow nor vanish."""
    scale = max(map(abs, centred))
    if not scale:
        return 0.0
    return scale * math.sqrt(math.fsum((value / scale) ** 2 for value in centred) / n)
