"""The job's sampling wins, and what it replaced is named."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import ids
from headrace.contracts.policy import Sampling, SessionOpen
from headrace.errors import BadRequest
from headrace_policy.sampling import decide


def session(mode: Any = "rl", **sampling: Any) -> SessionOpen:
    return SessionOpen(
        session_id="trace_1",
        job_id="job_1",
        rollout_id="job_1.train.i1.g0.m0",
        attempt=2,
        timeline=1,
        serve_id="serve_1",
        mode=mode,
        sampling=Sampling(**sampling),
        ttl_s=60,
    )


@pytest.mark.parametrize("mode", ["rl", "eval"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", 0.2),
        ("top_p", 0.9),
        ("top_k", 50),
        ("min_p", 0.05),
        ("presence_penalty", 0.5),
        ("frequency_penalty", -1),
        ("repetition_penalty", 1.1),
        ("logit_bias", {"7": 5}),
        ("n", 4),
        ("min_tokens", 3),
        ("ignore_eos", True),
        ("seed", 5),
        ("tool_choice", "required"),
        ("tool_choice", {"type": "function", "function": {"name": "go"}}),
        ("response_format", {"type": "json_object"}),
        ("guided_regex", "[0-9]"),
    ],
)
def test_what_changes_the_distribution_is_replaced_and_named(mode: str, name: str, value: Any):
    decision = decide(session(mode, temperature=1.0), 0, {name: value})
    assert decision.overridden == (name,)
    parameters = decision.engine_parameters(room=9)
    assert parameters == {"temperature": 1.0, "max_tokens": 9, "logprobs": 0, "detokenize": False}


@pytest.mark.parametrize(
    "request_",
    [
        {"temperature": 0.7, "top_p": 1.0, "top_k": -1, "n": 1, "presence_penalty": 0, "logit_bias": {}},
        {
            "top_p": None,
            "tool_choice": "auto",
            "response_format": {"type": "text"},
            "parallel_tool_calls": False,
        },
        {"thinking_mode": "think", "thinking_budget": 3, "stop_after_tool_calls": 1, "function_call": "x"},
    ],
)
def test_neutral_and_unknown_keys_are_not_reported(request_: dict[str, Any]):
    assert decide(session(temperature=0.7), 0, request_).overridden == ()


@pytest.mark.parametrize(
    ("job", "asked", "room", "expected"),
    [
        (None, {}, 30, 30),
        (8, {}, 30, 8),
        (8, {"max_tokens": 5}, 30, 5),
        (8, {"max_completion_tokens": 20, "max_tokens": 2}, 30, 8),
        (None, {"max_tokens": 512}, 30, 30),
    ],
)
def test_the_tightest_bound_on_the_reply_holds(
    job: int | None, asked: dict[str, Any], room: int, expected: int
):
    parameters = decide(session(max_tokens=job), 0, asked).engine_parameters(room)
    assert parameters["max_tokens"] == expected


def test_each_call_of_a_seeded_job_has_a_seed_of_its_own():
    seeds = [decide(session(seed=7), index, {}).seed for index in (0, 1)]
    assert seeds == [ids.sampling_seed(7, "job_1.train.i1.g0.m0", 2, index) for index in (0, 1)]
    assert decide(session(seed=7), 0, {}).engine_parameters(5)["seed"] == seeds[0]
    assert "seed" not in decide(session(seed=None), 0, {"seed": 3}).engine_parameters(5)


def test_greedy_evaluation_needs_no_seed():
    parameters = decide(session("eval", temperature=0, seed=7), 0, {"temperature": 1}).engine_parameters(5)
    assert parameters["temperature"] == 0
    assert "seed" not in parameters


def test_stop_texts_are_the_agents_and_need_the_engines_detokenizer():
    parameters = decide(session(), 0, {"stop": "END"}).engine_parameters(5)
    assert (parameters["stop"], parameters["detokenize"]) == (["END"], True)


@pytest.mark.parametrize(
    "request_",
    [
        {"max_tokens": 0},
        {"max_tokens": "9"},
        {"max_tokens": True},
        {"stop": [1]},
        {"stop": [""]},
        {"stop": 5},
    ],
)
def test_bounds_and_stops_that_make_no_sense_are_refused(request_: dict[str, Any]):
    with pytest.raises(BadRequest):
        decide(session(), 0, request_)
