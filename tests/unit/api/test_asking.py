from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import BadRequest
from headrace_api.inference.asking import IGNORED, Question

HI: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def test_keys_of_other_clients_are_left_out_and_the_rest_goes_on() -> None:
    asked = Question.parse({**HI, **dict.fromkeys(IGNORED, 1), "max_tokens": 5, "stop": "x", "tools": []})
    assert asked.body == {**HI, "max_tokens": 5, "stop": "x", "tools": []}


@pytest.mark.parametrize(
    ("given", "used"), [({}, 1.0), ({"temperature": None}, 1.0), ({"temperature": 0}, 0.0)]
)
def test_the_callers_temperature_wins_and_zero_is_greedy(given: dict[str, Any], used: float) -> None:
    assert Question.parse(HI | given).sampling.temperature == used


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": 2.1}, {"temperature": -1}, {"temperature": True}, {"temperature": float("nan")},
        {"seed": 1.5}, {"n": 0}, {"stream": "yes"}, {"model": 3}, {"messages": "hi"},
    ],
)  # fmt: skip
def test_a_value_that_makes_no_sense_is_refused_by_its_key(wrong: dict[str, Any]) -> None:
    [key] = wrong
    with pytest.raises(BadRequest, match=f'"{key}"'):
        Question.parse(HI | wrong)
