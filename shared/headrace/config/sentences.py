"""From a validator's findings to sentences that a person can act on."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError

from headrace.config.notes import shown
from headrace.config.paths import Path, dotted
from headrace.errors import ConfigError


def refusal(problems: Iterable[str]) -> ConfigError:
    """One error of all problems; each is a sentence."""
    problems = list(problems)
    return ConfigError("; ".join(problems), problems=problems)


def of_validation(error: ValidationError) -> list[str]:
    details = error.errors(include_url=False)
    return list(dict.fromkeys(_sentence(detail) for detail in details if not _is_other_branch(detail)))


def of_unknown(path: Path, valid: list[str]) -> str:
    close = nearest(path[-1], valid)
    hint = f"did you mean `{close}`?" if close else f"valid here: {', '.join(sorted(valid))}"
    return f"unknown key {dotted(path)}: {hint}"


def nearest(name: str, valid: Iterable[str]) -> str | None:
    found = difflib.get_close_matches(name[:200], list(valid), n=1, cutoff=0.5)
    return found[0] if found else None


def _is_label(part: str | int) -> bool:
    """Whether a part of an error's location names a branch of a union and no key."""
    return isinstance(part, str) and ("[" in part or part[:1].isupper())


def _is_other_branch(detail: Any) -> bool:
    """Of a list or a table (`seeds`) only the branch that the value's kind asks for has a say."""
    if not detail["loc"] or not _is_label(detail["loc"][-1]):
        return False
    is_table = isinstance(detail["input"], dict)
    return detail["type"] == "model_type" or (detail["type"] == "tuple_type" and is_table)


_PLAIN = {
    "tuple_type": "must be a list",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "model_attributes_type": "must be a table",
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "too_short": "must not be empty",
}
"""Words for what the validator says in Python's."""


def _sentence(detail: Any) -> str:
    message = _PLAIN.get(detail["type"]) or detail["msg"].removeprefix("Value error, ")
    location = tuple(part for part in detail["loc"] if not _is_label(part))
    if detail["type"] == "missing":
        return f"missing key {dotted(location)}"
    if not location or message.startswith("["):
        return message
    value = detail.get("input")
    text = f" = {_value(value)}" if isinstance(value, str | int | float | bool) else ""
    return f"{dotted(location)}{text}: {message[:1].lower()}{message[1:]}"


def _value(value: str | int | float | bool) -> str:
    if isinstance(value, bool | float):
        return shown(value) if isinstance(value, bool) else repr(value)
    try:
        text = repr(value)
    except ValueError:  # an integer too long to be written out
        return "a very long number"
    return text if len(text) <= 80 else f"{text[:77]}..."
