"""What the API reads of rollouts: lists, one rollout with its attempts, and where its trace lies."""

from __future__ import annotations

from sqlalchemy import func, select
from sqlmodel import Session, col

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
