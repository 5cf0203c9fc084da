"""models.toml: the operator's names for models, and how each is served. Read anew each time it is asked.

[models."Qwen/Qwen3-0.6B"]
path = "models/qwen3-0.6b"          # a folder (relative to HEADRACE_HOME) or a hub id
tool_parser = "hermes"              # vLLM's --tool-call-parser
reasoning_parser = "qwen3"          # vLLM's --reasoning-parser
chat_template = "templates/q.jinja" # in place of the folder's own
experimental = true                 # refused without allow_experimental
"""

from __future__ import annotations

import difflib
import re
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from headrace.errors import ConfigError
from headrace.settings import Settings

_PARSER_NAME = re.compile(r"[A-Za-z0-9][\w.+-]*")


@dataclass(frozen=True)
class ModelEntry:
    """One `[models."<name>"]` table, checked."""

    path: str
    """A folder, absolute or under HEADRACE_HOME, or a hub id in the local cache."""
    tool_parser: str | None = None
    """The engine's parser of tool calls; None leaves the topology's, else `hermes`."""
    reasoning_parser: str | None = None
    """The engine's parser of reasoning; None means that replies are not searched for any."""
    chat_template: Path | None = None
    """A Jinja file that stands in for the folder's own template."""
    experimental: bool = False
    """Whether a job has to allow it."""


KEYS = tuple(field.name for field in fields(ModelEntry))


def read_table(settings: Settings) -> dict[str, ModelEntry]:
    """Every entry by name; raises ConfigError with one sentence for each thing that is wrong."""
    file = settings.models_toml
    try:
        table: Any = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file} is not valid TOML: {error}") from error
    problems = [f'[{key}] is not a table of it; write [models."<name>"]' for key in table if key != "models"]
    entries = table.get("models", {})
    if not isinstance(entries, dict):
        problems.append('write one table per model, [models."<name>"] with a key `path`')
        entries = {}
    for name, entry in entries.items():
        problems += _problems(name, entry, settings.home)
    if problems:
        sentences = [f"{file}: {problem}" for problem in problems]
        raise ConfigError("; ".join(sentences), problems=sentences)
    return {name: _entry(entry, settings.home) for name, entry in entries.items()}


def _entry(raw: dict[str, Any], home: Path) -> ModelEntry:
    template = raw.get("chat_template")
    return ModelEntry(**{**raw, "chat_template": None if template is None else _file(template, home)})


def _file(text: str, home: Path) -> Path:
    try:
        return (home / Path(text).expanduser()).resolve()
    except RuntimeError:  # `~nobody`
        return home / text


def _problems(name: str, raw: Any, home: Path) -> list[str]:
    where = f'[models."{name}"]'
    if not isinstance(raw, dict):
        return [f"{where} must be a table with a key `path`"]
    found = [_unknown(where, key) for key in raw if key not in KEYS]
    if name.startswith(("ft:", "checkpoint:")):
        found.append(f"{where}: names with `ft:` or `checkpoint:` are the server's own; choose another")
    if not _is_text(raw.get("path")):
        found.append(f"{where} needs a key `path` (a folder or a hub id)")
    for key in ("tool_parser", "reasoning_parser"):
        if key in raw and not (isinstance(raw[key], str) and _PARSER_NAME.fullmatch(raw[key])):
            found.append(f"{where} {key} = {raw[key]!r} must be the name of one of the engine's parsers")
    if "experimental" in raw and not isinstance(raw["experimental"], bool):
        found.append(f"{where} experimental = {raw['experimental']!r} must be true or false")
    template = raw.get("chat_template")
    if "chat_template" in raw and not _is_text(template):
        found.append(f"{where} chat_template = {template!r} must be the path of a Jinja file")
    elif template and not _file(template, home).is_file():
        found.append(f"{where} chat_template = {template!r}: there is no file {_file(template, home)}")
    return found


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _unknown(where: str, key: str) -> str:
    near = difflib.get_close_matches(key, KEYS, 1)
    hint = f"did you mean `{near[0]}`?" if near else f"known keys: {', '.join(KEYS)}"
    return f"{where} has an unknown key `{key}`; {hint}"
