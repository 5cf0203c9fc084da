"""Chat JSONL: one conversation a line, as SFT reads it.

    {"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]}

Tools may come flat (`{"name": ...}`) or in OpenAI's nested form (`{"function": {"name": ...}}`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from headrace.errors import DataError

ROLES = ("system", "developer", "user", "assistant", "tool")
MAX_PROBLEMS = 20
"""Problems that are listed; checking goes no further."""


def check_chat_jsonl(lines: Iterable[bytes], name: str) -> int:
    """The number of conversations; raises DataError that names the line of each problem found.

    Blank lines are skipped but counted, so that a number is the one an editor shows.
    """
    problems: list[str] = []
    n_rows = 0
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        n_rows += 1
        problems += [f"line {number}: {problem}" for problem in _problems_of_line(line)]
        if len(problems) >= MAX_PROBLEMS:
            break
    if not n_rows:
        problems.append("the file holds no conversation; write one JSON object per line")
    if problems:
        more = f" (and {len(problems) - 1} more problems)" if len(problems) > 1 else ""
        raise DataError(f"{name}, {problems[0]}{more}", problems=problems[:MAX_PROBLEMS])
    return n_rows


def _problems_of_line(line: bytes) -> Iterator[str]:
    try:
        row = json.loads(line.decode())
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeDecodeError:
        yield "is not UTF-8 text"
        return
    except UnicodeEncodeError:
        yield "holds half of a surrogate pair, which is no text"
        return
    except json.JSONDecodeError as error:
        yield f"is not valid JSON: {error.msg} at column {error.colno}"
        return
    except RecursionError:
        yield "is nested too deeply"
        return
    if not isinstance(row, dict):
        yield f"must be a JSON object with a key `messages`, not {_kind(row)}"
        return
    yield from _problems_of_messages(row.get("messages"))
    yield from _problems_of_tools(row.get("tools"))
    if row.get("metadata") is not None and not isinstance(row["metadata"], dict):
        yield f"`metadata` must be an object, not {_kind(row['metadata'])}"


def _problems_of_messages(messages: Any) -> Iterator[str]:
    if not isinstance(messages, list) or not messages:
        shown = "an empty list" if messages == [] else "missing" if messages is None else _kind(messages)
        yield f"`messages` must be a list of at least one message, and is {shown}"
        return
    for index, message in enumerate(messages):
        for problem in _problems_of_message(message):
            yield f"messages[{index}] {problem}"
    if not any(isinstance(message, dict) and message.get("role") == "assistant" for message in messages):
        yield "no message has the role `assistant`, so there is nothing to learn"


def _problems_of_message(message: Any) -> Iterator[str]:
    if not isinstance(message, dict):
        yield f"must be an object, not {_kind(message)}"
        return
    role = message.get("role")
    if role not in ROLES:
        yield f"has the role {role!r}; use one of {', '.join(ROLES)}"
    content, tool_calls = message.get("content"), message.get("tool_calls")
    if content is not None and not isinstance(content, str | list | dict):
        yield f"has a content of {_kind(content)}; use text, a list of parts, an object or null"
    if tool_calls is not None and not (
        isinstance(tool_calls, list) and all(isinstance(call, dict) for call in tool_calls)
    ):
        yield "has `tool_calls` that is not a list of objects"
    if role == "assistant" and content is None and not tool_calls:
        yield "(assistant) has neither content nor tool_calls"
    for key in ("name", "reasoning", "raw_content"):
        if message.get(key) is not None and not isinstance(message[key], str):
            yield f"has a `{key}` that is {_kind(message[key])}, not text"


def _problems_of_tools(tools: Any) -> Iterator[str]:
    if tools is None:
        return
    if not isinstance(tools, list):
        yield f"`tools` must be a list, not {_kind(tools)}"
        return
    for index, tool in enumerate(tools):
        nested = tool.get("function") if isinstance(tool, dict) else None
        holder = nested if isinstance(nested, dict) else tool
        if not isinstance(holder, dict) or not isinstance(holder.get("name"), str) or not holder["name"]:
            yield f"tools[{index}] has no `name`"


def _kind(value: Any) -> str:
    """What a person calls the JSON value.

    >>> _kind([])
    'a list'
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    names = {str: "text", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return names.get(type(value), type(value).__name__)
