"""What a job's events tell about its config, beside errors."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Note:
    """A sentence about a config that is accepted; `type` is the event's (`rl.config.replaced`)."""

    type: str
    message: str
    data: dict[str, Any]
    """`keys` names the config keys meant, as a person writes them (`[training] max_turns`)."""
    level: str = "warning"


@dataclass(frozen=True)
class Replaced:
    """A value that other clients may send and that acts as another one."""

    key: str
    value: Any
    used: Any
    """What acts instead; None: nothing, the key is left out."""
    why: str

    def note(self, prefix: str) -> Note:
        instead = "is left out" if self.used is None else f"acts as {shown(self.used)}"
        data = {"keys": [self.key], "key": self.key, "value": self.value, "used": self.used, "why": self.why}
        message = f"{self.key} = {shown(self.value)} {instead}: {self.why}"
        return Note(f"{prefix}.config.replaced", message, data)


def ignored(prefix: str, keys: Iterable[str]) -> tuple[Note, ...]:
    """The note on keys that no section has."""
    keys = list(keys)
    message = f"unknown keys were ignored: {', '.join(keys)}"
    return (Note(f"{prefix}.config.ignored", message, {"keys": keys}),) if keys else ()


def not_used(prefix: str, why: dict[str, str]) -> tuple[Note, ...]:
    """The note on keys that are accepted and have no effect, with a reason for each."""
    message = f"accepted, not used: {', '.join(why)}"
    data = {"keys": list(why), "why": why}
    return (Note(f"{prefix}.config.not_used", message, data),) if why else ()


def shown(value: Any) -> str:
    """A value as a config would hold it, shortened."""
    try:
        text = f"{value:g}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):  # a date, an endless number, a pit of tables
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."
