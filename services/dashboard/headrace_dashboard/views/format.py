"""Numbers, times and ids as people read them (also the filters of the templates)."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

from headrace.clock import now

DASH = "–"
MINUS = "−"


def number(value: object) -> str:
    """Four significant digits, thousands separated.

    >>> number(0.123456), number(12345.6), number(3), number(None), number(2e-05), number(-0.5)
    ('0.1235', '12,346', '3', '–', '2e-5', '−0.5')
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return DASH if value is None else str(value)
    if not math.isfinite(value):
        return {math.inf: "∞", -math.inf: f"{MINUS}∞"}.get(value, "not a number")
    return _finite_number(value).replace("-", MINUS, 1) if value < 0 else _finite_number(value)


def _finite_number(value: float) -> str:
    size = abs(value)
    if value == int(value) and size < 1e9:
        return f"{int(value):,}"
    if size < 1e-3 or size >= 1e9:
        mantissa, _, exponent = f"{value:.3g}".partition("e")
        return f"{mantissa}e{int(exponent)}" if exponent else mantissa
    if size >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def percent(value: float | None) -> str:
    """
    >>> percent(0.5), percent(0.0312), percent(None)
    ('50 %', '3.1 %', '–')
    """
    if value is None or not math.isfinite(value):
        return DASH
    share = value * 100
    return f"{share:.0f} %" if share >= 10 or share == int(share) else f"{share:.1f} %"


def parse_time(text: object) -> datetime | None:
    """An ISO time of the API (UTC where it names no zone), or seconds since 1970."""
    if isinstance(text, int | float) and text > 0:
        return datetime.fromtimestamp(text, UTC)
    if not isinstance(text, str) or not text:
        return None
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def duration(seconds: float | None) -> str:
    """
    >>> duration(0.031), duration(4.25), duration(75), duration(3725), duration(90000)
    ('31 ms', '4.2 s', '1 min 15 s', '1 h 2 min', '1 d 1 h')
    """
    if seconds is None:
        return DASH
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes_left = divmod(minutes, 60)
    days, hours_left = divmod(hours, 24)
    if days:
        return f"{days} d {hours_left} h"
    if hours:
        return f"{hours} h {minutes_left} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def age(text: object) -> str:
    """How long ago: `just now`, `5 min ago`, `3 h ago`, `12 d ago`."""
    then = parse_time(text)
    if then is None:
        return DASH
    seconds = (now() - then).total_seconds()
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return "just now" if seconds < 10 else f"{int(seconds)} s ago"


def clock_time(text: object) -> str:
    """`2025-11-02 14:03:09 UTC`."""
    then = parse_time(text)
    return then.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if then else DASH


def pretty(value: object) -> str:
    """JSON over several lines; text stays text."""
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False, default=str)


def compact(value: object, limit: int = 400) -> str:
    """One line of text or JSON, cut at `limit` characters."""
    if value is None:
        return DASH
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def words(text: object) -> str:
    """
    >>> words("policy_failed")
    'policy failed'
    """
    return str(text).replace("_", " ") if text else DASH


FILTERS: dict[str, Any] = {
    "number": number,
    "percent": percent,
    "duration": duration,
    "age": age,
    "clock_time": clock_time,
    "pretty": pretty,
    "compact": compact,
    "words": words,
}
