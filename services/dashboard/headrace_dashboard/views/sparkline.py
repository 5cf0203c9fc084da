"""A small line of the last rewards, as points of an SVG polyline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from headrace_dashboard.series import thin

WIDTH, HEIGHT, MARGIN = 120, 28, 2


@dataclass(frozen=True)
class Sparkline:
    points: str
    """`x,y x,y ...` in a box of WIDTH by HEIGHT."""
    n_points: int
    last: float
    last_x: float
    last_y: float


def sparkline(values: Sequence[float]) -> Sparkline | None:
    """None where no value is finite."""
    kept = [value for value in thin(values, WIDTH // 4) if math.isfinite(value)]
    if not kept:
        return None
    low, high = min(kept), max(kept)
    span = (high - low) or 1.0
    step = (WIDTH - 2 * MARGIN) / max(len(kept) - 1, 1)
    points = [
        (round(MARGIN + i * step, 1), round(HEIGHT - MARGIN - (v - low) / span * (HEIGHT - 2 * MARGIN), 1))
        for i, v in enumerate(kept)
    ]
    return Sparkline(" ".join(f"{x},{y}" for x, y in points), len(kept), kept[-1], *points[-1])
