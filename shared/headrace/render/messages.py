"""Messages of the OpenAI dialect: the one form in which they are rendered, and when two are equal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from headrace.errors import BadRequest
from headrace.render.template import Message

TEXT_KEYS = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
    "thinking": "thinking",
}
"""Kinds of content parts that are text, and the key that holds it."""


def texts_of(content: Any) -> list[str]:
    """The texts of a message's `content`: a string is one, null is none, a list has one per part."""
    if content is None:
        return []
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        raise BadRequest(
            f"message content must be text or a list of text parts, got {type(content).__name__}"
        )
    return [_text_of_part(part) for part in content]


def _text_of_part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict):
        text = part.get(TEXT_KEYS.get(part.get("type", "text"), ""))
        if isinstance(text, str):
            return text
    raise BadRequest("message content holds a part that is not text; the policy reads text only")


def text_of(content: Any) -> str:
    """The text of a message's `content`, its parts on lines of their own.

    >>> text_of([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])
    'a\\nb'
    """
    return "\n".join(texts_of(content))


def reasoning_of(message: Message) -> str | None:
    """What the assistant thought, under either of its names; None where the message does not say."""
    for name in ("reasoning", "reasoning_content"):
        if isinstance(message.get(name), str):
            return message[name]
    return None


def normalised(message: Message, as_parts: bool = False) -> Message:
    """The form that templates expect: text content, tool arguments as objects, both names of reasoning.

    `as_parts` gives the content as a list of text parts, for templates that go through one; a tool's
    reply is text for those too. Arguments that are no JSON object become an empty one, as the engine's
    own renderer does it.
    """
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise BadRequest('each message must be an object with a "role"')
    texts = texts_of(message.get("content"))
    plain: Message = {"role": message["role"], "content": "\n".join(texts)}
    if as_parts and message["role"] != "tool":
        plain["content"] = [{"type": "text", "text": text} for text in texts]
    if message["role"] == "assistant":
        plain |= _normalised_reply(message)
    for key in ("name", "tool_call_id"):
        if isinstance(message.get(key), str):
            plain[key] = message[key]
    return plain


def _normalised_reply(message: Message) -> Message:
    """What only an assistant's message has."""
    more: Message = {}
    if calls := message.get("tool_calls"):
        more["tool_calls"] = [
            {
                **call,
                "function": {"name": name, "arguments": arguments if isinstance(arguments, dict) else {}},
            }
            for call, (name, arguments) in zip(calls, tool_calls_of(message), strict=True)
        ]
    if (reasoning := reasoning_of(message)) is not None:
        more["reasoning"] = more["reasoning_content"] = reasoning
    return more


def tool_calls_of(message: Message) -> list[tuple[str, Any]]:
    """(name, parsed arguments) of each tool call; arguments that are no JSON stay text."""
    calls, given = [], message.get("tool_calls") or []
    if not isinstance(given, list):
        raise BadRequest(f'"tool_calls" must be a list, got {type(given).__name__}')
    for call in given:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise BadRequest('each tool call must be an object with "function" and its "name"')
        calls.append((function["name"], _parsed(function.get("arguments"))))
    return calls


def _parsed(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return arguments or {}
    try:
        return json.loads(arguments) if arguments.strip() else {}
    except json.JSONDecodeError:
        return arguments


def are_equal(left: Message, right: Message) -> bool:
    """Design rule 5: same role, tool calls by name and parsed arguments, text up to outer white space.

    A missing `reasoning` equals any. The name of a speaker other than the policy counts.
    """
    if left is right:
        return True
    if left.get("role") != right.get("role"):
        return False
    if text_of(left.get("content")).strip() != text_of(right.get("content")).strip():
        return False
    if left.get("role") == "assistant":
        reasoning = (reasoning_of(left) or "").strip(), (reasoning_of(right) or "").strip()
        if all(reasoning) and reasoning[0] != reasoning[1]:
            return False
        return tool_calls_of(left) == tool_calls_of(right)
    return (left.get("name") or "") == (right.get("name") or "")


def is_prefix(beginning: Sequence[Message], messages: Sequence[Message]) -> bool:
    return len(beginning) <= len(messages) and all(map(are_equal, beginning, messages))
