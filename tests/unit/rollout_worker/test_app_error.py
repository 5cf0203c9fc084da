"""Which errors of a task app mean that the inference failed, and which are about what the policy did."""

from __future__ import annotations

from typing import Any

import pytest

from headrace_rollout_worker.app_error import app_error


def answer(error: Any, tool_calls: Any = (), **info: Any) -> dict[str, Any]:
    step = {"obs": {}, "tool_calls": list(tool_calls), "info": {"error": error, **info}}
    return {"trajectories": [{"steps": [{"obs": {}, "info": {}}, step]}]}


@pytest.mark.parametrize(
    "error",
    [
        "All connection attempts failed",
        "Connection refused",
        "[Errno 104] Connection reset by peer",
        "ReadTimeout",
        "the request timed out",
        "Server disconnected without sending a response.",
        "[Errno -2] Name or service not known",
        "HTTP 503",
        "HTTP/1.1 502 Bad Gateway",
        "Error code: 500 - {'error': ...}",
        "status_code=504",
        "Server error '503 Service Unavailable' for url 'http://policy/v1'",
        "503 Service Unavailable",
        {"error": {"code": "inference_upstream_error", "status": 503}},
        {"status_code": 502},
        {"error": {"body": {"error": {"code": 500}}}},
        {"status": 429},
    ],
)
def test_an_inference_that_failed_is_recognised(error):
    found = app_error(answer(error))
    assert found is not None
    assert found.is_broken


@pytest.mark.parametrize(
    "error",
    [
        "seat 503 is taken",
        "the answer 512 is wrong",
        "connect four: column 5 is full",
        "illegal move 500",
        "connected components differ",
        "port 5000 is no answer",
        "no tool call",
        "status: lost, score 501 points",
        {"error": {"code": "illegal_move", "move": 503}},
        {"code": 400, "message": "no such action"},
    ],
)
def test_a_number_or_a_word_alone_is_no_broken_inference(error):
    found = app_error(answer(error))
    assert found is not None
    assert not found.is_broken


@pytest.mark.parametrize("error", [None, False, {}, []])
def test_no_error_is_none(error):
    assert app_error(answer(error)) is None


def test_only_the_last_step_counts():
    told = answer(None)
    told["trajectories"][0]["steps"][0]["info"]["error"] = "All connection attempts failed"
    assert app_error(told) is None


def test_an_error_without_a_text_is_one():
    """`str()` of a time-out is empty, and a released app reports just that."""
    found = app_error(answer(""))
    assert found is not None
    assert found.told == "an error without a text"


def test_a_status_beside_the_error_counts():
    found = app_error(answer("inference failed", code=502))
    assert found is not None
    assert found.is_broken


def test_an_overflow_is_told_from_a_broken_inference():
    found = app_error(answer({"error": {"status": 400, "body": {"code": "context_length_exceeded"}}}))
    assert found is not None
    assert (found.is_overflow, found.is_broken) == (True, False)


def test_a_step_with_an_action_had_its_reply():
    told = app_error(answer("illegal move", tool_calls=[{"tool": "move", "args": {}}]))
    assert told is not None
    assert told.has_acted
    told = app_error(answer("illegal move", action="left"))
    assert told is not None
    assert told.has_acted
