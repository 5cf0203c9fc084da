"""Writes what the trajectory streams hold into SQL. Recording an entry twice changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import CursorResult, update
from sqlmodel import Session, col

from headrace.contracts.policy import PolicyVersion
from headrace.contracts.trajectory import Trajectory
from headrace.store.insert import insert_new
from headrace.store.tables import Attempt, EventRewardRow, OutcomeRewardRow, Rollout, Trace

ACCEPTED = "accepted"
"""The stream's verdict on the one attempt of a rollout that counts (`queue.streams.Verdict`)."""


@dataclass(frozen=True)
class Recorded:
    """One attempt as it came from the stream, with its trace already durable."""

    trajectory: Trajectory
    verdict: str
    trace_path: str
    trace_sha256: str


def record(session: Session, items: Iterable[Recorded], is_kept: Callable[[str, str], bool]) -> None:
    """Write attempts, rewards and trace rows of a batch, and the outcome of each accepted rollout.

    `is_kept(rollout_id, session_id)` says whether a later timeline has taken this attempt over; it
    is asked only where the rollout's row is of a later timeline than the attempt. A failed attempt
    leaves the rollout as it was: whether it is played again is the trainer's decision.
    """
    batch = list(items)
    insert_new(session, [_attempt(item) for item in batch])
    insert_new(session, [_trace(item) for item in batch])
    insert_new(session, [reward for item in batch for reward in _event_rewards(item.trajectory)])
    insert_new(session, [_outcome(item.trajectory) for item in batch if item.trajectory.outcome.has_reward])
    for item in batch:
        if item.verdict == ACCEPTED:
            _settle(session, item.trajectory, is_kept)


def _settle(session: Session, trajectory: Trajectory, is_kept: Callable[[str, str], bool]) -> None:
    outcome = _rollout_outcome(trajectory)
    statement = update(Rollout).where(col(Rollout.rollout_id) == trajectory.rollout_id).values(**outcome)
    result = session.execute(statement.where(col(Rollout.timeline) <= trajectory.timeline))
    assert isinstance(result, CursorResult)
    if result.rowcount:
        return
    row = session.get(Rollout, trajectory.rollout_id)
    if row is None:
        session.add(_planned(trajectory).sqlmodel_update(outcome))
    elif is_kept(trajectory.rollout_id, trajectory.session_id):
        session.execute(statement)


def _planned(trajectory: Trajectory) -> Rollout:
    return Rollout(
        rollout_id=trajectory.rollout_id,
        org_id=trajectory.org_id,
        job_id=trajectory.job_id,
        purpose=trajectory.purpose,
        iteration=trajectory.iteration,
        group_index=trajectory.group,
        member=trajectory.member,
        seed=trajectory.seed,
        timeline=trajectory.timeline,
    )


def _rollout_outcome(trajectory: Trajectory) -> dict[str, object]:
    versions = sorted(_versions(trajectory), key=lambda version: (version.timeline, version.n))
    rewards = trajectory.rewards
    return {
        "status": str(trajectory.outcome),
        "session_id": trajectory.session_id,
        "outcome_reward": rewards.outcome_reward,
        "event_reward_sum": sum(event.value for event in rewards.event_rewards),
        "n_turns": sum(call.reply is not None for call in trajectory.calls),
        "n_prompt_tokens": sum(len(call.new_prompt_ids) for call in trajectory.calls),
        "n_sampled_tokens": sum(len(call.sampled_ids) for call in trajectory.calls),
        "min_version": str(versions[0]) if versions else None,
        "max_version": str(versions[-1]) if versions else None,
        "reason": trajectory.reason,
        "finished_at": _time(trajectory.finished_at),
    }


def _versions(trajectory: Trajectory) -> Iterable[PolicyVersion]:
    return (span.version for call in trajectory.calls for span in call.version_spans)


def _attempt(item: Recorded) -> Attempt:
    trajectory = item.trajectory
    return Attempt(
        session_id=trajectory.session_id,
        org_id=trajectory.org_id,
        job_id=trajectory.job_id,
        rollout_id=trajectory.rollout_id,
        attempt=trajectory.attempt,
        timeline=trajectory.timeline,
        outcome=str(trajectory.outcome),
        verdict=item.verdict,
        reason=trajectory.reason,
        boundary=trajectory.boundary,
        started_at=_time(trajectory.started_at),
        finished_at=_time(trajectory.finished_at),
    )


def _trace(item: Recorded) -> Trace:
    trajectory = item.trajectory
    return Trace(
        session_id=trajectory.session_id,
        org_id=trajectory.org_id,
        job_id=trajectory.job_id,
        rollout_id=trajectory.rollout_id,
        path=item.trace_path,
        sha256=item.trace_sha256,
    )


def _event_rewards(trajectory: Trajectory) -> list[EventRewardRow]:
    return [
        EventRewardRow(
            session_id=trajectory.session_id,
            position=position,
            org_id=trajectory.org_id,
            job_id=trajectory.job_id,
            rollout_id=trajectory.rollout_id,
            turn=event.turn,
            call=event.call,
            key=event.key,
            value=event.value,
            type=event.type,
        )
        for position, event in enumerate(trajectory.rewards.event_rewards)
    ]


def _outcome(trajectory: Trajectory) -> OutcomeRewardRow:
    value = trajectory.rewards.outcome_reward
    assert value is not None, "the contract gives each rewarded outcome a reward"
    return OutcomeRewardRow(
        session_id=trajectory.session_id,
        org_id=trajectory.org_id,
        job_id=trajectory.job_id,
        rollout_id=trajectory.rollout_id,
        value=value,
        source=trajectory.rewards.source,
        disagreement=trajectory.rewards.disagreement,
    )


def _time(unix_s: float) -> datetime:
    return datetime.fromtimestamp(unix_s, UTC)
