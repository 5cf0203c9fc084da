"""From a task app's answer to rewards: one normaliser, in the contract's order of trust.

Outcome: `outcome_reward`, `metrics.outcome_score`, `metrics.mean_return`, `metrics.episode_returns[0]`,
the sum of `decision_rewards`, the sum of `steps[].reward`. Events: `event_rewards`, else
`decision_rewards`. Steps' rewards are the outcome's parts, so they are not events beside it.
Knows no HTTP, no job and no policy beyond the captured calls.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from headrace.contracts.policy import Call
from headrace.contracts.trajectory import EventReward, Rewards

TOLERANCE = 1e-6


class BadReward(Exception):
    """A reward is missing or is no finite number; never to be read as 0."""


def steps_of(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Steps of the first trajectory; whatever is not of the contract's shape is left out."""
    trajectory = first_trajectory(answer)
    steps = trajectory.get("steps")
    return [step for step in steps if isinstance(step, dict)] if isinstance(steps, list) else []


def first_trajectory(answer: dict[str, Any]) -> dict[str, Any]:
    trajectories = answer.get("trajectories")
    if isinstance(trajectories, list) and trajectories and isinstance(trajectories[0], dict):
        return trajectories[0]
    return {}


def answered(calls: Sequence[Call]) -> list[Call]:
    """Calls that got a reply, without those that a retry superseded (unless there are no others)."""
    replied = [call for call in calls if call.error is None and call.reply is not None]
    return [call for call in replied if call.is_trainable] or replied


def normalise(answer: dict[str, Any], calls: Sequence[Call]) -> Rewards:
    """Event rewards tied to calls, and the outcome; raises BadReward."""
    events = _events(answer, calls)
    candidates = list(_outcomes(answer))
    if not candidates:
        raise BadReward(
            "the task app's answer has no reward: none of outcome_reward, metrics.outcome_score, "
            "metrics.mean_return, metrics.episode_returns, decision_rewards and steps[].reward"
        )
    source, outcome = candidates[0]
    others = [] if source == "outcome_reward" else candidates[1:]
    differing = [f"{name} = {value:g}" for name, value in others if abs(value - outcome) > TOLERANCE]
    return Rewards(
        outcome_reward=outcome,
        event_rewards=tuple(events),
        source=source,
        disagreement=f"{source} = {outcome:g} but {', '.join(differing)}" if differing else None,
    )


def _outcomes(answer: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """(field, value) of each field that gives an outcome, the most trusted first."""
    if answer.get("outcome_reward") is not None:
        yield "outcome_reward", _finite("outcome_reward", answer["outcome_reward"])
    metrics = answer.get("metrics")
    metrics = metrics if isinstance(metrics, dict) else {}
    for name in ("outcome_score", "mean_return"):
        if metrics.get(name) is not None:
            yield f"metrics.{name}", _finite(f"metrics.{name}", metrics[name])
    returns = metrics.get("episode_returns")
    if isinstance(returns, list) and returns and returns[0] is not None:
        yield "metrics.episode_returns[0]", _finite("metrics.episode_returns[0]", returns[0])
    if decisions := list(_decisions(answer)):
        yield "decision_rewards", _finite("decision_rewards", sum(value for _, _, value in decisions))
    rewards = [step["reward"] for step in steps_of(answer) if step.get("reward") is not None]
    if rewards:
        total = sum(_finite("steps[].reward", reward) for reward in rewards)
        yield "steps[].reward", _finite("sum of steps[].reward", total)


def _events(answer: dict[str, Any], calls: Sequence[Call]) -> list[EventReward]:
    own = answer.get("event_rewards")
    if own is None:
        return [
            EventReward(
                turn=turn, call=_cause(None, turn, answer, calls), key=key, value=value, type="achievement"
            )
            for turn, key, value in _decisions(answer)
            if value != 0
        ]
    if not isinstance(own, list) or not all(isinstance(event, dict) for event in own):
        raise BadReward("event_rewards is no list of objects")
    events = []
    for event in own:
        turn = _turn(event.get("turn"), default=0)
        key = str(event.get("key") or "reward")
        events.append(
            EventReward(
                turn=turn,
                call=_cause(event.get("call"), turn, answer, calls),
                key=key,
                value=_finite(f"event_rewards {key!r} of turn {turn}", event.get("value")),
                type=str(event.get("type") or "sparse"),
            )
        )
    return events


def _decisions(answer: dict[str, Any]) -> Iterator[tuple[int, str, float]]:
    """(turn, key, value) from `steps[].info.meta.decision_rewards`, else from the compact trace."""
    found = []
    for index, step in enumerate(steps_of(answer)):
        given = _dig(step, "info", "meta", "decision_rewards")
        found += [(index, one) for one in (given if isinstance(given, list) else [given]) if one is not None]
    if not found:
        traced = _dig(answer, "trace", "decision_rewards")
        found = list(enumerate(traced)) if isinstance(traced, list) else []
    for index, given in found:
        if not isinstance(given, dict):
            yield index, "decision", _finite("decision_rewards", given)
            continue
        for field, key in (("unique_delta", "unique_achievement"), ("ach_delta", "achievement")):
            if given.get(field) is not None:
                turn = _turn(given.get("turn"), default=index)
                yield turn, key, _finite(f"decision_rewards.{field}", given[field])
                break


def _cause(named: Any, turn: int, answer: dict[str, Any], calls: Sequence[Call]) -> int | None:
    """Index of the call that caused an event of `turn`.

    By the completion id that the event or its step names, else the turn-th answered call, else the last.
    """
    if named is None:
        steps = steps_of(answer)
        named = _dig(steps[turn], "info", "meta", "raw_response", "id") if turn < len(steps) else None
    for call in calls:
        if named is not None and call.call_id == named:
            return call.index
    replied = answered(calls)
    if not replied:
        return None
    return replied[turn].index if turn < len(replied) else replied[-1].index


def _finite(name: str, value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(_as_float(value)):
        raise BadReward(f"the task app's {name} = {str(value)[:80]} is no finite number")
    return _as_float(value)


def _as_float(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer of hundreds of digits
        return math.inf


def _turn(value: Any, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31 else default


def _dig(value: Any, *path: str) -> Any:
    for name in path:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value
