"""Tables and JSON on stdout, sparklines and durations: how every command shows what it has."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import click

_BARS = "▁▂▃▄▅▆▇█"


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def print_table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Left-aligned columns, as wide as they need to be, so that a pipe gets whole values."""
    if not rows:
        click.echo("none")
        return
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(len(header), *(len(row[i]) for row in cells)) for i, header in enumerate(headers)]
    click.echo(click.style(_row(headers, widths), bold=True))
    for row in cells:
        click.echo(_row(row, widths))


def number(value: float | None) -> str:
    """Three significant digits, or `-` where there is no value.

    >>> number(0.12345), number(12345.6), number(None), number(float("nan"))
    ('0.123', '1.23e+04', '-', 'nan')
    """
    return "-" if value is None else f"{value:.3g}"


def clock(seconds: float) -> str:
    """Minutes and seconds since the start, hours where there are any.

    >>> clock(75), clock(3675)
    ('01:15', '1:01:15')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes:02}:{rest:02}"


def sparkline(values: Sequence[float], width: int = 40) -> str:
    """The last `width` finite values as bars between their least and greatest.

    >>> sparkline([0.0, 0.5, 1.0])
    '▁▅█'
    """
    shown = [value for value in values if math.isfinite(value)][-width:]
    if not shown:
        return ""
    low, high = min(shown), max(shown)
    if high == low:
        return _BARS[3] * len(shown)
    return "".join(_BARS[round((value - low) / (high - low) * (len(_BARS) - 1))] for value in shown)


def printable(text: str) -> str:
    """`text` without control characters: what a task app or a dataset wrote must not drive the terminal.

    >>> printable("a\\x1b[31mb\\nc")
    'a[31mb c'
    """
    return "".join(" " if char in "\n\t" else char for char in text if char.isprintable() or char in "\n\t")


def _cell(value: object) -> str:
    if isinstance(value, float):
        return number(value)
    return "-" if value is None else printable(str(value))


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def print_report(facts: dict[str, Any], prefix: str = "") -> None:
    """A job's result as `name value` lines, small tables inside it with dotted names,
    long ones only by their length."""
    flat = dict(_flat(facts, prefix))
    width = max((len(name) for name in flat), default=0)
    for name, value in flat.items():
        click.echo(f"  {name.ljust(width)}  {_cell(value)}")


def _flat(facts: dict[str, Any], prefix: str):
    for name, value in facts.items():
        if isinstance(value, dict) and len(value) <= 12:
            yield from _flat(value, f"{prefix}{name}.")
        elif isinstance(value, dict | list) and len(value) > 4:
            yield f"{prefix}{name}", f"{len(value)} values"
        else:
            yield f"{prefix}{name}", value
