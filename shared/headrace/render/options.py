"""What a request says of its prompt besides messages and tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.errors import BadRequest

TAKEN = ("messages", "tools", "add_generation_prompt", "continue_final_message", "chat_template", "tokenize")
"""Names that a template's variables may not have, since the request or the model decides them."""


@dataclass(frozen=True)
class PromptOptions:
    """Variables of the chat template, and how the prompt ends."""

    variables: Mapping[str, Any] = field(default_factory=dict)
    """What the template may look at beside the conversation, such as `enable_thinking`."""
    add_generation_prompt: bool = True
    """Whether the prompt ends with the opening of an assistant's turn."""
    continue_final_message: bool = False
    """Whether the last message is left open for the reply to go on with."""

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> PromptOptions:
        """The options of a chat request, by the keys and rules that the engine's own renderer has."""
        is_continued = _flag(body, "continue_final_message", False)
        is_opened = _flag(body, "add_generation_prompt", not is_continued)
        if is_continued and is_opened:
            raise BadRequest(
                "continue_final_message and add_generation_prompt exclude each other; set one of them"
            )
        return cls(_variables(body), is_opened, is_continued)


def _flag(body: Mapping[str, Any], key: str, default: bool) -> bool:
    value = body.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise BadRequest(f"{key} must be true or false, got {value!r}")
    return value


def _variables(body: Mapping[str, Any]) -> dict[str, Any]:
    given = body.get("chat_template_kwargs") or {}
    if not isinstance(given, dict):
        raise BadRequest(f"chat_template_kwargs must be an object, got {given!r}")
    if wrong := [name for name in TAKEN if name in given]:
        raise BadRequest(f"chat_template_kwargs may not set {wrong[0]!r}; leave it out")
    variables = dict(given)
    effort, documents = body.get("reasoning_effort"), body.get("documents")
    if effort is not None:
        variables["reasoning_effort"] = effort
        variables.setdefault("enable_thinking", effort != "none")
    if documents is not None:
        if not isinstance(documents, list) or not all(isinstance(entry, dict) for entry in documents):
            raise BadRequest('"documents" must be a list of objects')
        variables["documents"] = documents
    return variables
