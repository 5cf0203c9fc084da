"""Links to the pages before and after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode


@dataclass(frozen=True)
class Paging:
    text: str
    """`51–100 of 320`."""
    before: str | None
    after: str | None


def paging(path: str, filters: Mapping[str, str], offset: int, size: int, total: int) -> Paging:
    """
    >>> paging("/x", {"status": "scored", "purpose": ""}, 50, 50, 120).after
    '/x?status=scored&offset=100'
    """

    def link(to: int) -> str:
        query = {name: value for name, value in filters.items() if value} | {"offset": str(to)}
        return f"{path}?{urlencode(query)}"

    first, last = min(offset + 1, total), min(offset + size, total)
    return Paging(
        text=f"{first:,}–{last:,} of {total:,}" if total else "none",
        before=link(max(0, offset - size)) if offset > 0 else None,
        after=link(offset + size) if offset + size < total else None,
    )
