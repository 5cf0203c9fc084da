"""Tables of a submitted request, read without trust."""

from __future__ import annotations

from typing import Any

from headrace.config.load import parse_toml
from headrace.errors import ConfigError

Json = dict[str, Any]


def table(holder: Json, key: str) -> Json:
    """A table of the request; absent and null are empty."""
    value = holder.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise error(f"{key} must be an object, not {value!r}")
    return value


def text(holder: Json, key: str) -> str | None:
    """A text of the request; absent and null are None."""
    value = holder.get(key)
    if value is not None and not isinstance(value, str):
        raise error(f"{key} = {value!r} must be text")
    return value


def flag(payload: Json, key: str) -> bool:
    value = payload.get(key)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise error(f"{key} = {value!r} must be true or false")
    return value


def section(raw: Json, name: str) -> Json:
    """A section of the raw config to write into, made when it is absent."""
    if raw.get(name) is None:
        raw[name] = {}
    if not isinstance(raw[name], dict):
        raise error(f"[{name}] must be a table, not {raw[name]!r}")
    return raw[name]


def config_of(holder: Json) -> tuple[Json, str | None]:
    """The config as JSON and, where it came, the TOML text (which alone is enough)."""
    toml = holder.get("config_toml")
    if toml is not None and not isinstance(toml, str):
        raise error("config_toml must be text")
    if toml is not None and holder.get("config") is None:
        return parse_toml(toml, "config_toml"), toml
    return table(holder, "config"), toml


def error(sentence: str) -> ConfigError:
    return ConfigError(sentence, problems=[sentence])
