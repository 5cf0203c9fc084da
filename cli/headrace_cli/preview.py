"""A payload as it may be shown: without secrets, and with the TOML's text left out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

HIDDEN = "***"
_SECRET_NAME = re.compile(
    r"(^|[_-])(api[_-]?keys?|secret([_-]key)?|password|passwd|authorization|credentials?|private[_-]key|token)$",
    re.IGNORECASE,
)
_SECRET_VARIABLE = re.compile(r"(KEY|KEYS|ALIASES|SECRET|TOKEN|PASSWORD)$", re.IGNORECASE)
_USERINFO = re.compile(r"(?<=://)[^/@\s]+@")
MIN_SECRET = 8
"""A shorter value of a variable is no secret worth the words it would hide by chance."""


def secrets_of(environ: Mapping[str, str]) -> list[str]:
    """Values of the environment that must not be shown, the longest first."""
    found = {
        value.strip()
        for name, text in environ.items()
        if _SECRET_VARIABLE.search(name)
        for value in text.split(",")
        if len(value.strip()) >= MIN_SECRET
    }
    return sorted(found, key=len, reverse=True)


def shown(value: Any, secrets: Iterable[str]) -> Any:
    """`value` with secrets replaced, by the key that holds them or by what they are."""
    if isinstance(value, dict):
        return {key: _entry(str(key), item, secrets) for key, item in value.items()}
    if isinstance(value, list):
        return [shown(item, secrets) for item in value]
    return _text(value, secrets) if isinstance(value, str) else value


def preview(payload: Mapping[str, Any], secrets: Iterable[str]) -> str:
    """The payload as indented JSON."""
    return json.dumps(shown(payload, list(secrets)), indent=2, ensure_ascii=False, default=str)


def _entry(key: str, value: Any, secrets: Iterable[str]) -> Any:
    if key == "config_toml" and isinstance(value, str):
        return f"({len(value.splitlines())} lines, sent as they are)"
    if isinstance(value, str) and value and _SECRET_NAME.search(key):
        return HIDDEN
    return shown(value, secrets)


def _text(value: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        value = value.replace(secret, HIDDEN)
    return _USERINFO.sub(f"{HIDDEN}@", value)
