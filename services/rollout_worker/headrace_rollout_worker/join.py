"""Join an order, a task app's answer and the captured calls into a trajectory, and judge how it ended.

Who broke an episode is read off the gateway's own record first, then off the app's `info.error`.
Knows no HTTP, no queue and no clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from headrace.contracts.policy import Call
from headrace.contracts.rollout import RolloutOrder
from headrace.contracts.trajectory import Op, Outcome, Rewards, TaskAppIdentity, Trajectory
from headrace_rollout_worker.app_error import AppError, app_error
from headrace_rollout_worker.rewards import BadReward, answered, first_trajectory, normalise, steps_of

NO_FAILURE_REWARD = (
    "the policy broke the episode and the task app gave no reward for it; "
    "set `[training.rollouts] failure_reward`, or `reward_range` in the task app"
)


@dataclass(frozen=True)
class Judgement:
    """How an attempt ended; `rewards` holds an outcome exactly where the outcome has a reward."""

    outcome: Outcome
    reason: str | None = None
    boundary: str | None = None
    rewards: Rewards = field(default_factory=Rewards)


@dataclass(frozen=True)
class Attempt:
    """What is known of one attempt when it is over."""

    session_id: str
    started_at: float
    finished_at: float
    answer: dict[str, Any] | None = None
    """The task app's answer; None when there was no usable one."""
    failure: str | None = None
    """Why there is no answer."""
    calls: tuple[Call, ...] = ()
    task_app: TaskAppIdentity = field(default_factory=TaskAppIdentity)


def judge(order: RolloutOrder, attempt: Attempt) -> Judgement:
    """Scored, failed by the policy, or broken by something else (which is never a reward)."""
    if broken := _infrastructure_error(attempt.calls):
        return Judgement(Outcome.INFRA_FAILED, f"a call of the policy failed: {broken}", "policy")
    policy_fault = _policy_fault(attempt.calls)
    if attempt.answer is None:
        if policy_fault is not None:
            return _policy_failed(order, policy_fault, None)
        return Judgement(Outcome.INFRA_FAILED, attempt.failure, "task_app")
    try:
        rewards = normalise(attempt.answer, attempt.calls)
    except BadReward as error:
        if policy_fault is not None:
            return _policy_failed(order, policy_fault, None)
        return Judgement(Outcome.INFRA_FAILED, str(error), "task_app")
    return _judge_answer(order, attempt.answer, attempt.calls, rewards, policy_fault)


def _judge_answer(
    order: RolloutOrder,
    answer: dict[str, Any],
    calls: tuple[Call, ...],
    rewards: Rewards,
    policy_fault: str | None,
) -> Judgement:
    error = app_error(answer)
    if policy_fault is None and error is not None and error.is_overflow:
        policy_fault = error.text
    if policy_fault is not None:
        return _policy_failed(order, policy_fault, rewards)
    if not answered(calls):
        return Judgement(Outcome.INFRA_FAILED, _why_unanswered(calls, error), "task_app")
    if error is not None and _is_swallowed(error, steps_of(answer), calls):
        return Judgement(Outcome.INFRA_FAILED, f"the task app reports an error: {error.told}", "task_app")
    return Judgement(Outcome.SCORED, rewards=rewards)


def _is_swallowed(error: AppError, steps: list[dict[str, Any]], calls: tuple[Call, ...]) -> bool:
    """Whether the app made a reward of an inference that failed, rather than of what the policy did.

    It says so itself, or the last step has neither an action nor a reply that reached the app.
    """
    n_delivered = sum(call.error is None and call.reply is not None and call.is_trainable for call in calls)
    return error.is_broken or (not error.has_acted and n_delivered < len(steps))


def _why_unanswered(calls: tuple[Call, ...], error: AppError | None) -> str:
    told = f" (the app says: {error.told})" if error else ""
    if calls:
        why = calls[-1].untrainable_reason or "no reply"
        return f"the episode has a reward but no call of the policy was answered: {why}{told}"
    return (
        f"the episode has a reward but no call reached the policy; the task app must use "
        f"policy.config.inference_url{told}"
    )


def _policy_failed(order: RolloutOrder, fault: str, rewards: Rewards | None) -> Judgement:
    if rewards is None:
        value = order.failure_reward
        if value is None or not math.isfinite(value):
            return Judgement(Outcome.INFRA_FAILED, f"{NO_FAILURE_REWARD} ({fault})", "policy")
        rewards = Rewards(outcome_reward=value, source="failure_reward")
    return Judgement(Outcome.POLICY_FAILED, fault, rewards=rewards)


def _policy_fault(calls: tuple[Call, ...]) -> str | None:
    """The policy's own error that ended the episode: one after which no call was answered."""
    fault = None
    for call in calls:
        if call.error is None and call.reply is not None:
            fault = None
        elif call.error is not None and call.error.is_policy_fault:
            fault = f"{call.error.code}: {call.error.message}"
    return fault


def _infrastructure_error(calls: tuple[Call, ...]) -> str | None:
    """The first broken call that was not made good by the same request answered later."""
    for position, call in enumerate(calls):
        if call.error is None or call.error.is_policy_fault:
            continue
        is_made_good = any(
            later.error is None
            and later.reply is not None
            and (later.parent, later.new_messages) == (call.parent, call.new_messages)
            for later in calls[position + 1 :]
        )
        if not is_made_good:
            return f"{call.error.status} {call.error.code}: {call.error.message}"
    return None


def build_trajectory(order: RolloutOrder, attempt: Attempt, judgement: Judgement) -> Trajectory:
    """The attempt as it travels on the job's stream."""
    answer = attempt.answer or {}
    final = first_trajectory(answer).get("final")
    metrics = answer.get("metrics")
    details = metrics.get("details") if isinstance(metrics, dict) else None
    steps = steps_of(answer)
    return Trajectory(
        org_id=order.org_id,
        job_id=order.job_id,
        rollout_id=order.rollout_id,
        session_id=attempt.session_id,
        attempt=order.attempt,
        timeline=order.timeline,
        purpose=order.purpose,
        iteration=order.iteration,
        group=order.group,
        member=order.member,
        seed=order.seed,
        outcome=judgement.outcome,
        reason=judgement.reason,
        boundary=judgement.boundary,
        rewards=judgement.rewards,
        is_truncated=_is_truncated(steps, final),
        ops=tuple(_op(index, step, order.record_trace) for index, step in enumerate(steps)),
        final_observation=_observed(final) if order.record_trace else None,
        details=details if isinstance(details, dict) else {},
        task_app=attempt.task_app,
        calls=attempt.calls if order.record_trace else tuple(map(_without_messages, attempt.calls)),
        started_at=attempt.started_at,
        finished_at=attempt.finished_at,
    )


def _op(index: int, step: dict[str, Any], keeps_content: bool) -> Op:
    info = step.get("info")
    info = info if isinstance(info, dict) else {}
    latency_ms, invalid = _number(info.get("latency_ms")), info.get("invalid_action")
    action = info.get("action")
    if action is None or step.get("tool_calls"):
        action = step.get("tool_calls")
    return Op(
        index=index,
        observation=_observed(step.get("obs")) if keeps_content else None,
        action=action if keeps_content else None,
        reward=_number(step.get("reward")),
        is_done=step.get("done") is True,
        is_truncated=step.get("truncated") is True,
        is_invalid_action=invalid if isinstance(invalid, bool) else None,
        latency_s=None if latency_ms is None else latency_ms / 1000,
        # `meta` repeats the whole request at each turn; the captured calls have it once.
        info={key: value for key, value in info.items() if key not in ("meta", "action")}
        if keeps_content
        else {},
    )


def _observed(given: Any) -> Any:
    """An observation, taken out of the object that the contract wraps around it."""
    return given["observation"] if isinstance(given, dict) and "observation" in given else given


def _is_truncated(steps: list[dict[str, Any]], final: Any) -> bool:
    if isinstance(final, dict) and isinstance(final.get("truncated"), bool):
        return final["truncated"]
    return bool(steps) and (steps[-1].get("truncated") is True or steps[-1].get("done") is not True)


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300
    return float(value) if is_number else None


def _without_messages(call: Call) -> Call:
    return call.model_copy(update={"new_messages": (), "reply": None, "tools": None})
