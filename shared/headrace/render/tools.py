"""Tools of a request or a dataset line, in the one form in which templates see them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.errors import BadRequest
from headrace.render.template import Tool

OPTIONAL_FIELDS = ("strict", "defer_loading")
"""Fields of a function that are written only where they are given."""


def normalised_tools(tools: Sequence[Tool] | None) -> list[Tool] | None:
    """Tools as the engine's own renderer writes them: nested, fields in a fixed order, null where absent.

    Takes the nested form (`{"type": "function", "function": {"name": ...}}`) and the flat one with the
    name on top, which SFT records of other clients have. Without any tool the answer is None.
    """
    return [_normalised(tool) for tool in tools] if tools else None


def _normalised(tool: Any) -> Tool:
    function = tool.get("function", tool) if isinstance(tool, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise BadRequest('each of "tools" must be an object with a "function" that has a "name"')
    plain = {
        "name": function["name"],
        "description": function.get("description"),
        "parameters": function.get("parameters"),
    }
    plain |= {name: function[name] for name in OPTIONAL_FIELDS if function.get(name) is not None}
    return {"type": "function", "function": plain}
