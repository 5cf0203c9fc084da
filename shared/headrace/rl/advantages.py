"""Advantages of the members of one group, in float64."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from headrace.errors import DataError

STD_EPSILON = 1e-4
"""Added to the standard deviation, as in TRL."""
ZERO_VARIANCE = 1e-8
"""Returns that differ by no more than this are one return."""


def group_advantages(returns: Sequence[float], kind: Literal["grpo", "dr_grpo"]) -> list[float]:
    """Advantages A_G from returns R_G of one group's scored members, in order.

    `grpo`: (R - mean) / (std + 1e-4) with the sample standard deviation, n - 1 (Shao et al. 2024,
    DeepSeekMath, eq. in 4.1.2; constants as in TRL). `dr_grpo`: R - mean (Liu et al. 2025,
    Understanding R1-Zero-Like Training). A zero-variance group gets exact zeros.
    Raises DataError for fewer than two members or a return that is not finite.

    >>> group_advantages([1.0, 0.0], "dr_grpo")
    [0.5, -0.5]
    """
    if len(returns) < 2:
        raise DataError(
            f"a group with {len(returns)} scored member(s) has no baseline; replace the group, do not train on it"
        )
    if not all(map(math.isfinite, returns)):
        raise DataError(f"returns {list(returns)} of a group are not all finite")
    if is_zero_variance(returns):
        return [0.0] * len(returns)
    mean = math.fsum(returns) / len(returns)
    centred = [value - mean for value in returns]
    if kind == "dr_grpo":
        return centred
    std = math.sqrt(math.fsum(value * value for value in centred) / (len(returns) - 1))
    return [value / (std + STD_EPSILON) for value in centred]


def is_zero_variance(returns: Sequence[float]) -> bool:
    """Whether the members cannot be told apart: all returns within 1e-8."""
    return max(returns) - min(returns) <= ZERO_VARIANCE
