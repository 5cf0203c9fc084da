"""Reads server-sent events by the rules of their standard, and adds OpenAI chunks up as its clients do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any


def sse_data(text: str) -> Iterator[str]:
    """The data of each event: comments are skipped, several data lines are one text, a blank line ends it."""
    assert text.endswith("\n\n"), "the last event has no end"
    data: list[str] = []
    for line in text.splitlines():
        if not line:
            if data:
                yield "\n".join(data)
            data = []
        elif not line.startswith(":"):
            name, _, value = line.partition(":")
            if name == "data":
                data.append(value.removeprefix(" "))


def accumulated(text: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The message that the deltas of a stream add up to, and its chunks."""
    *events, last = sse_data(text)
    assert last == "[DONE]"
    chunks = [json.loads(event) for event in events]
    message: dict[str, Any] = {}
    for chunk in chunks:
        assert chunk["object"] == "chat.completion.chunk"
        assert len({(c["id"], c["model"], c["created"]) for c in chunks}) == 1
        for choice in chunk["choices"]:
            _add(message, choice["delta"])
    for call in message.get("tool_calls", []):
        call.pop("index")
    return message, chunks


def _add(whole: dict[str, Any], delta: dict[str, Any]) -> None:
    """Texts are joined, objects added to each other, lists by the `index` of their entries."""
    for key, value in delta.items():
        before = whole.get(key)
        if before is None or key in ("index", "type"):
            whole[key] = [dict(entry) for entry in value] if isinstance(value, list) else value
        elif isinstance(value, str):
            whole[key] = before + value
        elif isinstance(value, dict):
            _add(before, value)
        elif isinstance(value, list):
            for entry in value:
                known = [other for other in before if other["index"] == entry["index"]]
                _add(known[0], entry) if known else before.append(dict(entry))
