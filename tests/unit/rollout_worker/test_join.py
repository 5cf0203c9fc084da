"""Who broke an episode, and what its trajectory holds."""

from __future__ import annotations

from typing import Any

import pytest
from tests.fakes.trajectories import make_call

from headrace.contracts.policy import Call, CallError, Sampling
from headrace.contracts.rollout import RolloutOrder
from headrace.contracts.trajectory import Outcome, Trajectory
from headrace_rollout_worker.join import Attempt, build_trajectory, judge

ORDER = RolloutOrder(
    org_id="local", job_id="job_1", rollout_id="job_1.train.i0.g0.m0", attempt=2, timeline=3, purpose="train",
    iteration=4, group=5, member=6, seed=7, mode="rl", serve_id="s", task_url="http://t",
    policy_url="http://p", policy_public_url="http://p", ops=("agent", "env"), sampling=Sampling(), model="m",
    deadline_s=10,
)  # fmt: skip
OVERFLOW = CallError(status=400, code="context_length_exceeded", message="too long", is_policy_fault=True)
ENGINE = CallError(status=502, code="engine", message="gone", is_policy_fault=False)
GO = ({"role": "user", "content": "go"},)


def good(index: int = 0, **changes: Any) -> Call:
    reply = {"role": "assistant", "content": "ok"}
    return make_call(index, [1], [2], **({"reply": reply, "new_messages": GO} | changes))


def bad(error: CallError, index: int = 0) -> Call:
    return make_call(index, [1], [], error=error, new_messages=GO, is_trainable=False)


def answer(mean_return: float | None = 1.0, **step: Any) -> dict[str, Any]:
    return {
        "metrics": {"mean_return": mean_return, "details": {"score": 3}},
        "trajectories": [{"steps": [{"obs": {"observation": "go"}, "done": True, "info": {}} | step]}],
    }


def attempt(*calls: Call, given: dict[str, Any] | None = None, failure: str | None = None) -> Attempt:
    return Attempt("trace_1", 1.0, 2.0, answer=given, failure=failure, calls=calls)


@pytest.mark.parametrize(
    ("case", "outcome", "boundary", "reward"),
    [
        (attempt(good(), given=answer()), Outcome.SCORED, None, 1.0),
        (attempt(good(), given=answer(None)), Outcome.INFRA_FAILED, "task_app", None),
        (attempt(given=answer()), Outcome.INFRA_FAILED, "task_app", None),
        (attempt(good(), failure="the task app answered 500"), Outcome.INFRA_FAILED, "task_app", None),
        # the policy broke it: the app's reward, else the job's
        (attempt(good(), bad(OVERFLOW, 1), given=answer(0.5)), Outcome.POLICY_FAILED, None, 0.5),
        (attempt(bad(OVERFLOW), given=answer(None)), Outcome.POLICY_FAILED, None, -3.0),
        (attempt(bad(OVERFLOW), failure="500"), Outcome.POLICY_FAILED, None, -3.0),
        # an agent that cut its history after the overflow went on
        (attempt(bad(OVERFLOW), good(1), given=answer()), Outcome.SCORED, None, 1.0),
        # a broken engine is never a reward, unless the same request was answered after all
        (attempt(bad(ENGINE), given=answer(-1.0)), Outcome.INFRA_FAILED, "policy", None),
        (attempt(bad(ENGINE), bad(OVERFLOW, 1), given=answer()), Outcome.INFRA_FAILED, "policy", None),
        (attempt(bad(ENGINE), good(1), given=answer()), Outcome.SCORED, None, 1.0),
        (attempt(bad(ENGINE), good(1, new_messages=()), given=answer()), Outcome.INFRA_FAILED, "policy", None),
        # the app's own word comes last
        (attempt(good(), given=answer(0.0, info={"error": "context length"})), Outcome.POLICY_FAILED, None, 0.0),
        (attempt(good(), given=answer(-1.0, info={"error": "ReadTimeout"})), Outcome.INFRA_FAILED, "task_app", None),
        (attempt(good(), given=answer(-1.0, info={"error": "HTTP 503"})), Outcome.INFRA_FAILED, "task_app", None),
        (attempt(good(), given=answer(-1.0, info={"error": "no such move"})), Outcome.SCORED, None, -1.0),
    ],
)  # fmt: skip
def test_the_gateways_record_is_judged_first_and_the_apps_word_after_it(case, outcome, boundary, reward):
    order = ORDER.model_copy(update={"failure_reward": -3.0})
    judgement = judge(order, case)
    assert (judgement.outcome, judgement.boundary) == (outcome, boundary), judgement.reason
    assert judgement.rewards.outcome_reward == reward
    trajectory = build_trajectory(order, case, judgement)
    assert Trajectory.model_validate_json(trajectory.model_dump_json()) == trajectory
    assert (trajectory.reason is None) == (outcome is Outcome.SCORED)


def test_a_policy_failure_without_any_reward_names_the_key_to_set():
    judgement = judge(ORDER, attempt(bad(OVERFLOW), failure="500"))
    assert (judgement.outcome, judgement.boundary) == (Outcome.INFRA_FAILED, "policy")
    assert "`[training.rollouts] failure_reward`" in (judgement.reason or "")


def test_a_trajectory_carries_the_orders_ids_and_the_apps_facts():
    case = attempt(
        good(),
        given=answer(
            1, reward=0.5, done=False, truncated=True,
            info={"invalid_action": True, "latency_ms": 20, "meta": {"big": 1}, "action": "up", "x": 1},
        ),
    )  # fmt: skip
    trajectory = build_trajectory(ORDER, case, judge(ORDER, case))
    assert (trajectory.attempt, trajectory.timeline, trajectory.iteration) == (2, 3, 4)
    assert (trajectory.group, trajectory.member, trajectory.seed) == (5, 6, 7)
    [op] = trajectory.ops
    assert (op.observation, op.action, op.reward, op.latency_s) == ("go", "up", 0.5, 0.02)
    assert (op.is_invalid_action, op.is_truncated, op.is_done) == (True, True, False)
    assert "meta" not in op.info
    assert op.info["x"] == 1
    assert trajectory.is_truncated
    assert trajectory.details == {"score": 3}


@pytest.mark.parametrize(
    "odd",
    [
        {"trajectories": [None]},
        {"trajectories": [{"steps": [None, 3, {"info": "text", "reward": "much", "done": "yes"}]}]},
        {"trajectories": [{"steps": {}, "final": 7}]},
        {"trajectories": [{"steps": [{"info": {"latency_ms": float("nan"), "invalid_action": "no"}}]}]},
        {"metrics": [1], "outcome_reward": 1.0},
    ],
)
def test_an_answer_of_an_odd_shape_is_read_as_far_as_it_goes(odd):
    case = attempt(good(), given={"outcome_reward": 1.0} | odd)
    judgement = judge(ORDER, case)
    trajectory = build_trajectory(ORDER, case, judgement)
    assert trajectory.outcome.has_reward == (trajectory.rewards.outcome_reward == 1.0)
    written = trajectory.model_dump_json()
    assert Trajectory.model_validate_json(written).model_dump_json() == written
