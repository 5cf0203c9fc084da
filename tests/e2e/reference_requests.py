"""Records of what the reference client really sends; the gate replays them without the client.

A run compares what it heard with the record. With `HEADRACE_RECORD=1` it writes the record anew.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "contract" / "reference_client"
_IDS = {"job": r"job_[0-9a-f]{16}", "file": r"file_[0-9a-f]{16}"}

Recorded = list[dict[str, Any]]


def load(name: str) -> Recorded:
    return json.loads((FOLDER / f"{name}.json").read_text())


def check_or_record(name: str, requests: Recorded, values: dict[str, str]) -> None:
    """Compare routes and bodies' keys with the record; `values` maps what changes to its placeholder."""
    heard = _tidy(requests, values)
    if os.environ.get("HEADRACE_RECORD") == "1":
        (FOLDER / f"{name}.json").write_text(json.dumps(heard, indent=1) + "\n")
    recorded = load(name)
    assert [_outline(one) for one in heard] == [_outline(one) for one in recorded]


def _tidy(requests: Recorded, values: dict[str, str]) -> Recorded:
    """The requests with placeholders, and a poll that is repeated only once."""
    text = json.dumps(requests)
    for value, placeholder in values.items():
        text = text.replace(value, placeholder)
    for kind, pattern in _IDS.items():
        for number, value in enumerate(dict.fromkeys(re.findall(pattern, text))):
            text = text.replace(value, f"{{{kind}_{number}}}")
    tidy: Recorded = []
    for one in json.loads(text):
        if not (tidy and one["method"] == "GET" and one == tidy[-1]):
            tidy.append(one)
    return tidy


def _outline(one: dict[str, Any]) -> tuple[Any, ...]:
    """Method, path, query keys and the body's shape: what a server depends on."""
    return one["method"], one["path"], sorted(one.get("query", {})), _shape(one.get("body"))


def _shape(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shape(inner) for key, inner in sorted(value.items())}
    return type(value).__name__
