"""What a model folder in HF layout says about itself, read without torch."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from headrace.errors import ConfigError

_VOLATILE = frozenset({"transformers_version", "_name_or_path", "torch_dtype", "dtype", "use_cache"})
"""Keys of config.json that differ between savers and change neither shapes nor the forward pass."""
_LENGTH_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")


def architecture_hash(folder: Path) -> str:
    """sha256 over config, tokenizer and chat template; equal means that weights swap in place.

    JSON is compared by content, so formatting and the order of keys do not count.
    """
    parts: dict[str, Any] = {
        "config": {key: value for key, value in _config(folder).items() if key not in _VOLATILE},
        "tokenizer": _read(folder / "tokenizer.json"),
        "generation_eos": _read(folder / "generation_config.json", {}).get("eos_token_id"),
    }
    facts = _read(folder / "tokenizer_config.json", {})
    template = folder / "chat_template.jinja"
    parts["chat_template"] = template.read_text() if template.is_file() else facts.get("chat_template")
    named = sorted((folder / "additional_chat_templates").glob("*.jinja"))
    if named:
        parts["named_templates"] = {path.stem: path.read_text() for path in named}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def max_model_len(folder: Path) -> int:
    """Longest sequence in tokens that the model was made for."""
    config = _config(folder)
    for source in (config, config.get("text_config") or {}):
        for key in _LENGTH_KEYS:
            if isinstance(source.get(key), int):
                return source[key]
    raise ConfigError(f"{folder / 'config.json'} names no longest sequence; add max_position_embeddings")


def _config(folder: Path) -> dict[str, Any]:
    return _read(folder / "config.json")


def _read(path: Path, absent: dict[str, Any] | None = None) -> dict[str, Any]:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError as error:
        if absent is not None:
            return absent
        raise ConfigError(f"{path} does not exist; a model folder needs it") from error
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path} is not valid JSON: {error}") from error
