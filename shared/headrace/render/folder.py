"""What the files of a model folder say about its tokens: chat templates, special tokens, stop tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from headrace.errors import ConfigError

SPECIAL_TOKENS = tuple(f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
TEMPLATE_FILE, NAMED_TEMPLATES = "chat_template.jinja", "additional_chat_templates"


def read_json(path: Path) -> dict[str, Any]:
    """Content of a JSON file of the model folder; an absent file is an empty object."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path} is not valid JSON: {error}") from error


def special_tokens(folder: Path, facts: dict[str, Any]) -> dict[str, str]:
    """Texts of `bos_token`, `eos_token`, ... from the tokenizer's config, else from its map."""
    found = {}
    for source in (read_json(folder / "special_tokens_map.json"), facts):
        for name in SPECIAL_TOKENS:
            value = source.get(name)
            if isinstance(value, dict):
                value = value.get("content")
            if isinstance(value, str):
                found[name] = value
    return found


def chat_templates(folder: Path, facts: dict[str, Any]) -> dict[str, str]:
    """The templates' texts by name, `default` among them; `tool_use` is for requests with tools.

    The folder's files; without any `chat_template` of the tokenizer's config, one text or a list of
    named ones.
    """
    found = _template_files(folder) or _configured_templates(folder, facts.get("chat_template"))
    if len(found) == 1:
        [only] = found.values()
        return {"default": only}
    if not found:
        raise ConfigError(
            f"model folder {folder} has no chat template; add {TEMPLATE_FILE}, "
            "or chat_template in tokenizer_config.json"
        )
    if "default" not in found:
        raise ConfigError(
            f"model folder {folder} has chat templates named {', '.join(sorted(found))} and none named "
            "default; rename one"
        )
    return found


def _template_files(folder: Path) -> dict[str, str]:
    found = {path.stem: _read(path) for path in sorted((folder / NAMED_TEMPLATES).glob("*.jinja"))}
    if (folder / TEMPLATE_FILE).is_file():
        found["default"] = _read(folder / TEMPLATE_FILE)
    return found


def _configured_templates(folder: Path, given: Any) -> dict[str, str]:
    if given is None:
        return {}
    if isinstance(given, str):
        return {"default": given}
    entries = given if isinstance(given, list) else [given]
    for entry in entries:
        named = (entry.get("name"), entry.get("template")) if isinstance(entry, dict) else (None, None)
        if not all(isinstance(text, str) for text in named):
            raise ConfigError(
                f"chat_template in {folder / 'tokenizer_config.json'} must be a text, or a list of objects "
                "with a name and a template"
            )
    return {entry["name"]: entry["template"] for entry in entries}


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the chat template {path} cannot be read: {error}") from error


def eos_ids(folder: Path, tokenizer: Tokenizer, special: dict[str, str]) -> list[int]:
    """Ids that end a reply, as the generation config, the config and the tokenizer name them."""
    found: list[int] = []
    for name in ("generation_config.json", "config.json"):
        value = read_json(folder / name).get("eos_token_id")
        found += value if isinstance(value, list) else [] if value is None else [value]
    named = tokenizer.token_to_id(special["eos_token"]) if "eos_token" in special else None
    found += [] if named is None else [named]
    if not found:
        raise ConfigError(f"model folder {folder} names no eos token; add eos_token_id to config.json")
    return list(dict.fromkeys(found))
