from __future__ import annotations

import json

import pytest

from headrace.contracts.dataset import MAX_PROBLEMS, check_chat_jsonl
from headrace.errors import DataError

GOOD = {"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]}


def lines(*rows: object) -> list[bytes]:
    return [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]


def with_message(**message: object) -> dict[str, object]:
    return {"messages": [*GOOD["messages"], message]}


def test_good_lines_are_counted_and_blank_ones_skipped() -> None:
    tool_call = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}
    flat = {**GOOD, "tools": [{"name": "submit"}]}
    nested = {"messages": [tool_call], "tools": [{"type": "function", "function": {"name": "submit"}}]}
    assert check_chat_jsonl(lines(GOOD, b"  ", flat, nested), "d.jsonl") == 3


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (b"{", "is not valid JSON"),
        (b"\xff{}", "is not UTF-8"),
        ([1], "must be a JSON object"),
        ({}, "`messages` must be a list of at least one message, and is missing"),
        ({"messages": []}, "and is an empty list"),
        ({"messages": ["x"]}, "messages[0] must be an object, not text"),
        (with_message(role="robot", content="x"), "messages[2] has the role 'robot'"),
        (with_message(role="user", content=3), "messages[2] has a content of a number"),
        (with_message(role="assistant"), "messages[2] (assistant) has neither content nor tool_calls"),
        (with_message(role="user", content="x", tool_calls={}), "`tool_calls` that is not a list of objects"),
        (with_message(role="user", content="x", name=1), "`name` that is a number"),
        ({"messages": [{"role": "user", "content": "x"}]}, "no message has the role `assistant`"),
        ({**GOOD, "tools": [{"type": "function"}]}, "tools[0] has no `name`"),
        ({**GOOD, "tools": {}}, "`tools` must be a list"),
        ({**GOOD, "metadata": []}, "`metadata` must be an object"),
    ],
)
def test_a_bad_line_is_named_with_its_problem(row: object, problem: str) -> None:
    with pytest.raises(DataError) as refusal:
        check_chat_jsonl(lines(GOOD, b"", row), "d.jsonl")
    assert str(refusal.value).startswith("d.jsonl, line 3: ")
    assert problem in str(refusal.value)


def test_an_empty_file_is_refused() -> None:
    with pytest.raises(DataError, match="holds no conversation"):
        check_chat_jsonl(lines(b"", b" "), "d.jsonl")


def test_the_first_twenty_problems_are_listed() -> None:
    with pytest.raises(DataError) as refusal:
        check_chat_jsonl(lines(*[b"{"] * 50), "d.jsonl")
    problems = refusal.value.details["problems"]
    assert isinstance(problems, list)
    assert len(problems) == MAX_PROBLEMS
    assert problems[-1].startswith("line 20: ")
