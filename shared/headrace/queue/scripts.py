"""The Lua calls, loaded once from the files beside this module."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def source(name: str) -> str:
    """Text of `lua/<name>.lua`."""
    return (files("headrace.queue") / "lua" / f"{name}.lua").read_text()
