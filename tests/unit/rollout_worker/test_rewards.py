"""The normaliser against answers in the shapes that real task apps give."""

from __future__ import annotations

import math
from typing import Any

import pytest
from tests.fakes.trajectories import make_call

from headrace.contracts.policy import CallError
from headrace_rollout_worker.rewards import BadReward, answered, normalise

REPLY = {"role": "assistant", "content": "ok"}
CALLS = tuple(make_call(index, [1], [2], reply=REPLY) for index in range(3))

MATH = {
    "run_id": "r",
    "trajectories": [
        {
            "env_id": "math", "policy_id": "p", "length": 1, "inference_url": "u",
            "steps": [
                {
                    "obs": {"problem": "1+1"}, "done": True, "reward": 1.0,
                    "tool_calls": [{"tool": "math_submit", "args": {"answer": "2"}}],
                    "info": {"correct": True},
                }
            ],
        }
    ],
    "metrics": {
        "episode_returns": [1.0], "mean_return": 1.0, "num_steps": 1, "num_episodes": 1, "outcome_score": 1.0,
    },
    "trace": {"decision_rewards": [1.0]},
}  # fmt: skip
CRAFTER = {
    "run_id": "r",
    "trajectories": [
        {
            "env_id": "crafter", "policy_id": "p", "length": 2,
            "steps": [
                {
                    "obs": {"text": "a tree"}, "reward": None, "done": False,
                    "tool_calls": [{"tool_name": "interact_many", "arguments": "{}"}],
                    "info": {
                        "meta": {
                            "raw_response": {"id": "call_2"},
                            "decision_rewards": {
                                "turn": 0, "ach_delta": 3, "unique_delta": 2, "all": ["wood"], "unique": ["wood"],
                            },
                        }
                    },
                },
                {
                    "obs": {"text": "a cow"}, "reward": None, "done": False, "tool_calls": [],
                    "info": {"meta": {"decision_rewards": {"turn": 1, "ach_delta": 0, "unique_delta": 0}}},
                },
            ],
        }
    ],
    "metrics": {"episode_returns": [2.0], "mean_return": 2.0, "num_steps": 2, "outcome_score": None},
}  # fmt: skip


def steps(*rewards: Any) -> dict[str, Any]:
    return {"trajectories": [{"steps": [{"obs": {}, "tool_calls": [], "reward": r} for r in rewards]}]}


@pytest.mark.parametrize(
    ("answer", "outcome", "source"),
    [
        (
            {"outcome_reward": 0.5, "metrics": {"outcome_score": 1.0, "mean_return": 2.0}},
            0.5,
            "outcome_reward",
        ),
        ({"metrics": {"outcome_score": 1.0, "mean_return": 2.0}}, 1.0, "metrics.outcome_score"),
        ({"metrics": {"mean_return": 2, "episode_returns": [3.0]}}, 2.0, "metrics.mean_return"),
        ({"metrics": {"episode_returns": [3.0, 9.0]}}, 3.0, "metrics.episode_returns[0]"),
        ({"trace": {"decision_rewards": [1.0, 0.5]}}, 1.5, "decision_rewards"),
        (steps(0.25, None, 0.5), 0.75, "steps[].reward"),
        ({"outcome_reward": 0}, 0.0, "outcome_reward"),
        ({"outcome_reward": -1.5}, -1.5, "outcome_reward"),
        (MATH, 1.0, "metrics.outcome_score"),
        (CRAFTER, 2.0, "metrics.mean_return"),
    ],
)
def test_the_most_trusted_field_gives_the_outcome(answer, outcome, source):
    rewards = normalise(answer, CALLS)
    assert (rewards.outcome_reward, rewards.source) == (outcome, source)


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"metrics": None},
        {"metrics": {"episode_returns": []}},
        {"metrics": {"mean_return": None}},
        {"trajectories": "none"},
        steps(None, None),
        steps(),
    ],
)
def test_a_missing_reward_is_an_error_and_never_zero(answer):
    with pytest.raises(BadReward, match="has no reward"):
        normalise(answer, CALLS)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "1.0", True, [1.0], {"v": 1}, 10**400])
def test_a_reward_that_is_no_finite_number_is_an_error_even_where_another_field_is_good(value):
    for answer in (
        {"outcome_reward": value, "metrics": {"mean_return": 1.0}},
        {"metrics": {"outcome_score": value, "mean_return": 1.0}},
        {"metrics": {"mean_return": value}},
        {"metrics": {"episode_returns": [value]}},
        steps(0.0, value),
        {"outcome_reward": 1.0, "event_rewards": [{"turn": 0, "key": "k", "value": value}]},
    ):
        with pytest.raises(BadReward, match="no finite number"):
            normalise(answer, CALLS)


def test_a_sum_that_overflows_is_an_error():
    with pytest.raises(BadReward, match="sum of steps"):
        normalise(steps(1.7e308, 1.7e308), CALLS)


def test_fields_that_disagree_are_recorded_and_never_averaged():
    rewards = normalise({"metrics": {"outcome_score": 1.0, "mean_return": 0.25}} | steps(0.25), CALLS)
    assert rewards.outcome_reward == 1.0
    assert rewards.disagreement == (
        "metrics.outcome_score = 1 but metrics.mean_return = 0.25, steps[].reward = 0.25"
    )
    assert normalise(MATH, CALLS).disagreement is None


def test_our_own_events_name_their_calls_by_completion_id():
    answer = {
        "outcome_reward": 1.0,
        "event_rewards": [
            {"turn": 0, "call": "call_1", "key": "gold", "value": 2, "type": "achievement"},
            {"turn": 1, "call": None, "key": "fell", "value": -1.0},
            {"turn": 7, "value": 0.5},
        ],
    }
    got = [(e.turn, e.call, e.key, e.value, e.type) for e in normalise(answer, CALLS).event_rewards]
    assert got == [
        (0, 1, "gold", 2.0, "achievement"),
        (1, 1, "fell", -1.0, "sparse"),  # the turn-th answered call
        (7, 2, "reward", 0.5, "sparse"),  # the last one
    ]


def test_decision_rewards_become_events_with_the_calls_that_their_steps_name():
    rewards = normalise(CRAFTER, CALLS)
    assert [(e.turn, e.call, e.key, e.value, e.type) for e in rewards.event_rewards] == [
        (0, 2, "unique_achievement", 2.0, "achievement")
    ]
    assert rewards.disagreement is None


def test_the_traces_decision_rewards_serve_where_the_steps_have_none():
    [event] = normalise(MATH, CALLS).event_rewards
    assert (event.turn, event.call, event.key, event.value) == (0, 0, "decision", 1.0)


def test_an_empty_list_of_events_is_an_answer_and_not_a_reason_to_look_elsewhere():
    assert normalise(MATH | {"event_rewards": []}, CALLS).event_rewards == ()


@pytest.mark.parametrize("events", [{}, "x", [1], [None]])
def test_events_that_are_none_are_an_error(events):
    with pytest.raises(BadReward, match="event_rewards"):
        normalise({"outcome_reward": 1.0, "event_rewards": events}, CALLS)


def test_an_event_without_an_answered_call_has_no_cause():
    [event] = normalise(
        {"outcome_reward": 1.0, "event_rewards": [{"turn": 0, "value": 1.0}]}, ()
    ).event_rewards
    assert event.call is None


def test_failed_and_superseded_calls_do_not_count_as_answered():
    error = CallError(status=502, code="x", message="x", is_policy_fault=False)
    calls = (
        make_call(0, [1], [], error=error),
        make_call(1, [1], [2], reply=REPLY, is_trainable=False, untrainable_reason="superseded"),
        make_call(2, [1], [2], reply=REPLY),
    )
    assert [call.index for call in answered(calls)] == [2]
    [event] = normalise(
        {"outcome_reward": 1.0, "event_rewards": [{"turn": 0, "value": 1.0}]}, calls
    ).event_rewards
    assert event.call == 2


@pytest.mark.parametrize("turn", [None, -1, "two", True, 2**40, 1.5])
def test_a_turn_that_is_none_is_the_first(turn):
    [event] = normalise(
        {"outcome_reward": 1.0, "event_rewards": [{"turn": turn, "value": 1.0}]}, CALLS
    ).event_rewards
    assert event.turn == 0
