"""Dotted keys (`training.rollouts.seeds`) over raw configs, and how a person writes them."""

from __future__ import annotations

from typing import Any

Raw = dict[str, Any]
Path = tuple[str, ...]
ABSENT = object()
"""Stands for a key that is not set; None is JSON's null."""


def dotted(path: tuple[str | int, ...]) -> str:
    """`("training", "rollouts", "seeds")` as a person writes it: `[training.rollouts] seeds`."""
    *sections, key = [str(part) for part in path] or ["config"]
    return f"[{'.'.join(sections)}] {key}" if sections else key


def written(key: str) -> str:
    """The same from `training.rollouts.seeds`."""
    return dotted(tuple(key.split(".")))


def get(raw: Raw, key: str) -> Any:
    """The value at a dotted key; ABSENT where it is not set, is null, or lies under no table."""
    value: Any = raw
    for part in key.split("."):
        if not isinstance(value, dict):
            return ABSENT
        value = value.get(part, ABSENT)
    return ABSENT if value is None else value


def without(raw: Raw, key: str) -> Raw:
    """A copy without that key."""
    return _changed(raw, key.split("."), ABSENT)


def with_value(raw: Raw, key: str, value: Any) -> Raw:
    """A copy with that value; tables on the way are made."""
    return _changed(raw, key.split("."), value)


def _changed(table: Raw, path: list[str], value: Any) -> Raw:
    name, *deeper = path
    if deeper:
        inner = table.get(name)
        if value is ABSENT and not isinstance(inner, dict):
            return table
        return {**table, name: _changed(inner if isinstance(inner, dict) else {}, deeper, value)}
    if value is ABSENT:
        return {key: kept for key, kept in table.items() if key != name}
    return {**table, name: value}
