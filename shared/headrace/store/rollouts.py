"""What the API reads of rollouts: lists, one rollout with its attempts, and where its trace lies."""

from __future__ import annotations

from sqlalchemy import func, select, tuple_
from sqlmodel import Session, col

from headrace.contracts.trajectory import Outcome
from headrace.errors import NotFound
from headrace.store.tables import Attempt, EventRewardRow, Rollout, Trace


def list_rollouts(
    session: Session,
    org_id: str,
    job_id: str,
    *,
    purpose: str | None,
    iteration: int | None,
    status: str | None,
    limit: int,
    offset: int,
) -> tuple[list[Rollout], int]:
    """One page ordered by iteration, group and member, and how many there are in all."""
    statement = select(Rollout).where(col(Rollout.org_id) == org_id, col(Rollout.job_id) == job_id)
    for column, value in (
        (Rollout.purpose, purpose),
        (Rollout.iteration, iteration),
        (Rollout.status, status),
    ):
        if value is not None:
            statement = statement.where(col(column) == value)
    total = session.execute(select(func.count()).select_from(statement.subquery())).scalar_one()
    order = (col(Rollout.purpose), col(Rollout.iteration), col(Rollout.group_index), col(Rollout.member))
    page = session.execute(statement.order_by(*order).limit(limit).offset(offset)).scalars()
    return list(page), total


def get_rollout(session: Session, org_id: str, rollout_id: str) -> Rollout:
    row = session.get(Rollout, rollout_id)
    if row is None or row.org_id != org_id:
        raise NotFound(f"no rollout {rollout_id!r}")
    return row


def attempts(session: Session, rollout_id: str) -> list[Attempt]:
    """Every attempt, oldest first."""
    statement = (
        select(Attempt)
        .where(col(Attempt.rollout_id) == rollout_id)
        .order_by(col(Attempt.timeline), col(Attempt.attempt), col(Attempt.started_at))
    )
    return list(session.execute(statement).scalars())


def event_rewards(session: Session, session_id: str) -> list[EventRewardRow]:
    """The event rewards of one attempt, in order."""
    statement = (
        select(EventRewardRow)
        .where(col(EventRewardRow.session_id) == session_id)
        .order_by(col(EventRewardRow.position))
    )
    return list(session.execute(statement).scalars())


def trace(session: Session, session_id: str) -> Trace | None:
    return session.get(Trace, session_id)


def failed_attempts(session: Session, job_id: str, after: str | None, limit: int) -> list[Attempt]:
    """Attempts of a job that were not scored, oldest first, behind the one whose session id is `after`."""
    statement = select(Attempt).where(col(Attempt.job_id) == job_id, col(Attempt.outcome) != Outcome.SCORED)
    if after is not None:
        last = session.get(Attempt, after)
        if last is None or last.job_id != job_id:
            raise NotFound(f"after = {after!r} is no attempt of job {job_id}")
        seen = tuple_(col(Attempt.finished_at), col(Attempt.session_id))
        statement = statement.where(seen > (last.finished_at, last.session_id))
    order = (col(Attempt.finished_at), col(Attempt.session_id))
    return list(session.execute(statement.order_by(*order).limit(limit)).scalars())
