"""The tokenizer and chat template of one model folder, and what they say about the end of a turn."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from headrace.errors import BadRequest, ConfigError
from headrace.render.messages import normalised
from headrace.render.template import ChatTemplate, Message, Tool

SPECIAL_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token")
_SENTINEL = "headrace sentinel reply"


class Renderer:
    """Turns conversations into tokens and tokens into text, exactly as the served model expects them."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate, eos_ids: Sequence[int]) -> None:
        self._tokenizer, self._template = tokenizer, template
        self.eos_ids = tuple(eos_ids)
        """Ids that end a reply when sampled."""

    @classmethod
    def load(cls, folder: Path) -> Renderer:
        """Read `tokenizer.json`, the chat template and the stop tokens; raises ConfigError when one lacks."""
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise ConfigError(f"model folder {folder} has no tokenizer.json; save a fast tokenizer there")
        tokenizer = Tokenizer.from_file(str(path))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        facts = read_json(folder / "tokenizer_config.json")
        special = special_tokens(folder, facts)
        template = ChatTemplate(chat_template(folder, facts), special)
        return cls(tokenizer, template, _eos_ids(folder, tokenizer, special))

    def render_text(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool] | None = None,
        add_generation_prompt: bool = False,
    ) -> str:
        """The conversation as the template writes it."""
        plain = [normalised(message) for message in messages]
        return self._template.render(plain, tools, add_generation_prompt=add_generation_prompt)

    def encode(self, text: str) -> list[int]:
        """Token ids of text; the names of special tokens in it become those tokens."""
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int], *, skip_special: bool = False) -> str:
        return self._tokenizer.decode(list(ids), skip_special_tokens=skip_special)

    def token_text(self, token_id: int) -> str:
        """Text of one token in the vocabulary, for special tokens the name that templates write."""
        return self._tokenizer.id_to_token(token_id) or ""

    @cached_property
    def end_of_turn(self) -> str:
        """What the template writes after an assistant's text, such as `<|im_end|>` and a newline."""
        probe = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": _SENTINEL}]
        return self.render_text(probe).rpartition(_SENTINEL)[2]

    def after_stop(self, stop_id: int | None) -> str:
        """What the template still writes after a reply that ended with `stop_id` (None: was cut off).

        A sampled stop token other than the template's own stands in its place.
        """
        if stop_id is None:
            return self.end_of_turn
        candidates = (self.token_text(stop_id), *map(self.token_text, self.eos_ids))
        for text in filter(None, candidates):
            if text in self.end_of_turn:
                return self.end_of_turn.partition(text)[2]
        return self.end_of_turn


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


def chat_template(folder: Path, facts: dict[str, Any]) -> str:
    """The template's text: `chat_template.jinja`, else `chat_template` of the tokenizer's config."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text()
    template = facts.get("chat_template")
    if isinstance(template, list):  # several named ones
        template = {entry["name"]: entry["template"] for entry in template}.get("default")
    if not isinstance(template, str):
        raise ConfigError(
            f"model folder {folder} has no chat template; add chat_template.jinja, "
            "or chat_template in tokenizer_config.json"
        )
    return template


def _eos_ids(folder: Path, tokenizer: Tokenizer, special: dict[str, str]) -> list[int]:
    found: list[int] = []
    for name in ("generation_config.json", "config.json"):
        value = read_json(folder / name).get("eos_token_id")
        found += value if isinstance(value, list) else [] if value is None else [value]
    named = tokenizer.token_to_id(special["eos_token"]) if "eos_token" in special else None
    found += [] if named is None else [named]
    if not found:
        raise ConfigError(f"model folder {folder} names no eos token; add eos_token_id to config.json")
    return list(dict.fromkeys(found))


def require_messages(messages: Any) -> list[Message]:
    """The `messages` of a request: a non-empty list of objects."""
    if not isinstance(messages, list) or not messages:
        raise BadRequest('"messages" must be a list of at least one message')
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise BadRequest('each message must be an object with a "role"')
    return messages
