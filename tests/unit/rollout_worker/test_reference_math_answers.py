"""The released math task app's own answers, as recorded from it, through the worker's judgement.

It answers 200 with a reward of -1 whatever became of its inference; only `info.error` differs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.trajectories import make_call
from tests.unit.rollout_worker.test_join import ORDER

from headrace.contracts.policy import Call, CallError
from headrace.contracts.trajectory import Outcome
from headrace_rollout_worker.join import Attempt, build_trajectory, judge

FOLDER = Path(__file__).parents[2] / "contract" / "reference_client"
RECORDED: dict[str, Any] = json.loads((FOLDER / "math_task_app.json").read_text())["rollouts"]


def calls_of(case: dict[str, Any], name: str) -> tuple[Call, ...]:
    """What the gateway keeps of the case's inference."""
    if not case["inference_requests"]:
        return ()
    [request] = case["inference_requests"]
    messages, said = tuple(request["messages"]), case["policy_says"]
    if name == "late":  # the app went away before the answer
        return (make_call(0, [1], [], new_messages=messages, is_trainable=False, untrainable_reason="left"),)
    if "status" in said:
        error = CallError(**said)
        return (make_call(0, [1], [], error=error, new_messages=messages, is_trainable=False),)
    return (make_call(0, [1], [2], reply=said, new_messages=messages),)


@pytest.mark.parametrize(
    ("name", "outcome", "boundary", "reward"),
    [
        ("correct", Outcome.SCORED, None, 1.0),
        ("wrong", Outcome.SCORED, None, 0.0),
        ("blank", Outcome.SCORED, None, -0.5),
        ("arguments_are_no_json", Outcome.SCORED, None, -0.5),
        ("no_tool_call", Outcome.SCORED, None, -1.0),
        ("policy_fault", Outcome.POLICY_FAILED, None, -1.0),
        ("engine_500", Outcome.INFRA_FAILED, "policy", None),
        ("engine_503", Outcome.INFRA_FAILED, "policy", None),
        ("unreachable", Outcome.INFRA_FAILED, "task_app", None),
        ("late", Outcome.INFRA_FAILED, "task_app", None),
    ],
)
def test_each_answer_is_judged(name, outcome, boundary, reward):
    case = RECORDED[name]
    judgement = judge(ORDER, Attempt("trace_1", 1.0, 2.0, answer=case["answer"], calls=calls_of(case, name)))
    assert judgement.outcome is outcome, judgement.reason
    assert judgement.boundary == boundary
    assert judgement.rewards.outcome_reward == reward


def test_all_recorded_answers_but_the_policys_own_look_alike_without_info():
    """-1 alone says nothing: the same reward comes of a broken engine and of a policy without a tool call."""
    rewards = {name: case["answer"]["metrics"]["mean_return"] for name, case in RECORDED.items()}
    assert {rewards[name] for name in ("no_tool_call", "engine_500", "unreachable", "late")} == {-1.0}


@pytest.mark.parametrize("name", ["late", "engine_500"])
def test_the_apps_word_alone_is_enough_where_the_reply_did_not_reach_it(name):
    """The gateway answered, but the app had gone: the call is kept and marked untrainable."""
    reply = {"role": "assistant", "content": "too late"}
    undelivered = make_call(0, [1], [2], reply=reply, is_trainable=False, untrainable_reason="left")
    attempt = Attempt("trace_1", 1.0, 2.0, answer=RECORDED[name]["answer"], calls=(undelivered,))
    judgement = judge(ORDER, attempt)
    assert judgement.outcome is Outcome.INFRA_FAILED
    assert "the task app reports an error" in str(judgement.reason)


def test_the_tool_call_is_the_ops_action_and_the_facts_are_kept():
    case = RECORDED["wrong"]
    attempt = Attempt("trace_1", 1.0, 2.0, answer=case["answer"], calls=calls_of(case, "wrong"))
    trajectory = build_trajectory(ORDER, attempt, judge(ORDER, attempt))
    [op] = trajectory.ops
    assert op.action == [{"tool": "math_submit", "args": {"answer": "6"}}]
    assert (op.reward, op.is_done) == (0.0, True)
    assert op.info["status"] == "incorrect"
    assert trajectory.details == {"status": "incorrect", "correct": False}
    assert not trajectory.is_truncated


def test_the_app_forces_its_tool_and_asks_for_its_own_sampling():
    [request] = RECORDED["correct"]["inference_requests"]
    assert request["tool_choice"] == {"type": "function", "function": {"name": "math_submit"}}
    assert request["temperature"] == 1.0  # what `policy.config` gave it
