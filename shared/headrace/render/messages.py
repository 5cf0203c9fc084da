"""Messages of the OpenAI dialect: the one form in which they are rendered, and when two are equal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from headrace.errors import BadRequest
from headrace.render.template import Message


def text_of(content: Any) -> str:
    """The text of a message's `content`: a string, null (empty), or a list of text parts.

    >>> text_of([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])
    'a\\nb'
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise BadRequest(
            f"message content must be text or a list of text parts, got {type(content).__name__}"
        )
    texts = []
    for part in content:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict) and isinstance(part.get("text"), str):
            texts.append(part["text"])
        else:
            raise BadRequest("message content holds a part that is not text; the policy reads text only")
    return "\n".join(texts)


def reasoning_of(message: Message) -> str:
    given = message.get("reasoning") or message.get("reasoning_content")
    return given if isinstance(given, str) else ""


def normalised(message: Message) -> Message:
    """The form that templates expect: text content, tool arguments as objects, both names of reasoning.

    Arguments that are no JSON object become an empty one, as the engine's own renderer does it.
    """
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise BadRequest('each message must be an object with a "role"')
    plain: Message = {"role": message["role"], "content": text_of(message.get("content"))}
    if calls := message.get("tool_calls"):
        plain["tool_calls"] = [
            {**call, "function": {"name": name, "arguments": arguments}}
            for call, (name, arguments) in zip(calls, tool_calls_of(message), strict=True)
        ]
    if message["role"] == "assistant" and (reasoning := reasoning_of(message)):
        plain["reasoning"] = plain["reasoning_content"] = reasoning
    for key in ("name", "tool_call_id"):
        if isinstance(message.get(key), str):
            plain[key] = message[key]
    return plain


def tool_calls_of(message: Message) -> list[tuple[str, Any]]:
    """(name, parsed arguments) of each tool call."""
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
        return json.loads(arguments)
    except json.JSONDecodeError:
        return {}


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
        reasoning = reasoning_of(left).strip(), reasoning_of(right).strip()
        if all(reasoning) and reasoning[0] != reasoning[1]:
            return False
        return tool_calls_of(left) == tool_calls_of(right)
    return (left.get("name") or "") == (right.get("name") or "")


def is_prefix(beginning: Sequence[Message], messages: Sequence[Message]) -> bool:
    return len(beginning) <= len(messages) and all(map(are_equal, beginning, messages))
