"""Reading task apps of any version, and never repeating a key."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.contracts.task_app import TaskFacts, auth_headers, refusal


def test_all_keys_are_offered_and_no_header_is_sent_without_one():
    assert auth_headers(["a", "b"]) == {"X-API-Key": "a", "X-API-Keys": "a,b", "Authorization": "Bearer a"}
    assert auth_headers([]) == {}


def test_a_refused_key_names_the_command_that_stores_the_right_one():
    body = json.dumps(
        {"detail": {"error": {"code": "unauthorised", "message": "no", "got_first15": ["secret-key"]}}}
    )
    for status in (400, 401, 403):
        said = refusal(status, body, ["secret-key"])
        assert "headrace keys upload-env" in said
        assert "secret-key" not in said


def test_another_refusal_is_one_line_without_keys():
    said = refusal(500, "boom\n secret-key\n at line 3", ["secret-key"])
    assert said == "the task app answered 500: boom *** at line 3"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (
            {"taskset": {"seed_range": [0, 9], "version": 3}, "reward_range": [0, 1]},
            ((0, 9), (0.0, 1.0), "3"),
        ),
        ({"task": {"version": "7"}}, (None, None, "7")),
        ({"taskset": {"seed_range": [5, 1]}}, (None, None, None)),
        ({"reward_range": [0, float("inf")]}, (None, None, None)),
        ({"taskset": {"seed_range": ["a", "b"]}}, (None, None, None)),
        ([1, 2], (None, None, None)),
        (None, (None, None, None)),
    ],
)
def test_facts_are_read_tolerantly(answer: Any, expected: tuple):
    facts = TaskFacts.parse(answer)
    assert (facts.seed_range, facts.reward_range, facts.version) == expected
