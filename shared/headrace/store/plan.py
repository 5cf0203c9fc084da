"""The rollout plan of a job in SQL: which rollouts an iteration has asked for, and what became of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import select, update
from sqlmodel import Session, col

from headrace.clock import now
from headrace.store.tables import Job, Rollout


@dataclass(frozen=True)
class PlannedRollout:
    rollout_id: str
    group: int
    member: int
    seed: int


def save(
    session: Session,
    job: Job,
    timeline: int,
    purpose: str,
    iteration: int,
    rollouts: Iterable[PlannedRollout],
    *,
    keep: frozenset[str] = frozenset(),
) -> None:
    """Write rollouts as planned on `timeline`; rows of an undone timeline are planned anew.

    Rows named in `keep` already have a trajectory that will be used: only their timeline is raised.
    """
    rows = {row.rollout_id: row for row in of_iteration(session, job.job_id, purpose, iteration)}
    for planned in rollouts:
        row = rows.get(planned.rollout_id)
        if row is None:
            row = Rollout(
                rollout_id=planned.rollout_id,
                org_id=job.org_id,
                job_id=job.job_id,
                purpose=purpose,
                iteration=iteration,
                group_index=planned.group,
                member=planned.member,
                seed=planned.seed,
                timeline=timeline,
            )
            session.add(row)
        row.timeline = timeline
        if planned.rollout_id not in keep:
            row.seed, row.status, row.reason = planned.seed, "planned", None
            row.session_id = row.outcome_reward = row.event_reward_sum = row.finished_at = None


def of_iteration(session: Session, job_id: str, purpose: str, iteration: int) -> list[Rollout]:
    """Rows of one iteration in order of group and member."""
    statement = (
        select(Rollout)
        .where(
            col(Rollout.job_id) == job_id,
            col(Rollout.purpose) == purpose,
            col(Rollout.iteration) == iteration,
        )
        .order_by(col(Rollout.group_index), col(Rollout.member))
    )
    return list(session.execute(statement).scalars())


def give_up(session: Session, rollout_ids: Iterable[str], status: str, reason: str) -> None:
    """Close rollouts that will not be played again; those with an outcome keep it."""
    session.execute(
        update(Rollout)
        .where(col(Rollout.rollout_id).in_(list(rollout_ids)), col(Rollout.status) == "planned")
        .values(status=status, reason=reason, finished_at=now())
    )


def cancel_open(session: Session, job_id: str, reason: str) -> None:
    """Close every rollout of a finished job that has no outcome."""
    session.execute(
        update(Rollout)
        .where(col(Rollout.job_id) == job_id, col(Rollout.status) == "planned")
        .values(status="cancelled", reason=reason, finished_at=now())
    )


def cancel_undone(session: Session, job_id: str, last_iteration: int, timeline: int, reason: str) -> None:
    """Close what older timelines planned up to an iteration and `timeline` did not plan again.

    A rollout that has ended, and of which the recorder has yet to write, gets its outcome from there.
    """
    session.execute(
        update(Rollout)
        .where(
            col(Rollout.job_id) == job_id,
            col(Rollout.iteration) <= last_iteration,
            col(Rollout.timeline) < timeline,
            col(Rollout.status) == "planned",
        )
        .values(status="cancelled", reason=reason, finished_at=now())
    )
