"""A curve of numbers between 0 and 1 as lines of block characters."""

from __future__ import annotations

from collections.abc import Sequence

_EIGHTHS = " ▁▂▃▄▅▆▇█"


def draw(values: Sequence[float], height: int = 8, width: int = 64) -> list[str]:
    """One column per value (the newest `width`), `height` lines, an axis at the left.

    >>> draw([0.0, 0.5, 1.0], height=2)
    ['1.0 ┤  █', '    ┤ ██']
    """
    shown = [min(max(value, 0.0), 1.0) for value in values[-width:]]
    lines = []
    for row in reversed(range(height)):
        cells = [_EIGHTHS[round(min(max(value * height - row, 0.0), 1.0) * 8)] for value in shown]
        label = f"{(row + 1) / height:.1f}" if (height - 1 - row) % 2 == 0 else "   "
        lines.append(f"{label} ┤{''.join(cells)}")
    return lines
