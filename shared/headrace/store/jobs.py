"""Status moves, claims, leases and events of jobs. Each status move is one conditional UPDATE."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import CursorResult, func, or_, select, update
from sqlmodel import Session, col

from headrace.clock import now
from headrace.contracts.job import LEGAL_MOVES, JobStatus
from headrace.errors import Conflict, NotFound, StaleTimeline
from headrace.store import runs
from headrace.store.tables import Job, JobEvent

LEASE_S = 15.0
"""A running job whose owner has not renewed for so long may be taken over."""


def get_job(session: Session, org_id: str | None, job_id: str) -> Job:
    """The job; `org_id = None` is for our own processes, which serve all organisations."""
    job = session.get(Job, job_id)
    if job is None or org_id not in (None, job.org_id):
        raise NotFound(f"no job {job_id!r}")
    return job


def _rows(session: Session, statement: Any) -> int:
    result = session.execute(statement)
    assert isinstance(result, CursorResult)
    return result.rowcount


def move(session: Session, job_id: str, to: JobStatus, *, timeline: int | None = None, **fields: Any) -> None:
    """Move a job to a status along the legal table, in one UPDATE.

    With `timeline` given only the owner of that timeline succeeds: StaleTimeline otherwise.
    Raises Conflict when the present status does not allow the move.
    """
    sources = [status for status, targets in LEGAL_MOVES.items() if to in targets]
    condition = [col(Job.job_id) == job_id, col(Job.status).in_(sources)]
    if timeline is not None:
        condition.append(col(Job.timeline) == timeline)
    values: dict[str, Any] = {"status": to, "updated_at": now(), **fields}
    if to.is_terminal:
        values |= {"finished_at": now(), "lease_owner": None, "lease_expires_at": None, "paused_reason": None}
    if _rows(session, update(Job).where(*condition).values(**values)) == 1:
        if to is not JobStatus.QUEUED:
            runs.follow(session, job_id, to)
        return
    job = session.get(Job, job_id, populate_existing=True)
    if job is None:
        raise NotFound(f"no job {job_id!r}")
    if timeline is not None and job.timeline != timeline:
        raise StaleTimeline(
            f"job {job_id} is on timeline {job.timeline}, not {timeline}: another trainer owns it"
        )
    raise Conflict(f"job {job_id} is {job.status} and cannot become {to}")


def claim(session: Session, job_id: str, owner: str) -> int | None:
    """Take a queued job, or a running one whose lease has expired; returns the new timeline or None."""
    expired = (col(Job.status) == JobStatus.RUNNING) & or_(
        col(Job.lease_expires_at).is_(None), col(Job.lease_expires_at) < now()
    )
    statement = (
        update(Job)
        .where(col(Job.job_id) == job_id, or_(col(Job.status) == JobStatus.QUEUED, expired))
        .values(
            status=JobStatus.RUNNING,
            timeline=col(Job.timeline) + 1,
            lease_owner=owner,
            lease_expires_at=now() + timedelta(seconds=LEASE_S),
            started_at=func.coalesce(col(Job.started_at), now()),
            updated_at=now(),
            waiting_reason=None,
            paused_reason=None,
        )
    )
    if _rows(session, statement) != 1:
        return None
    runs.follow(session, job_id, JobStatus.RUNNING)
    return session.execute(select(col(Job.timeline)).where(col(Job.job_id) == job_id)).scalar_one()


def requeue(session: Session, job_id: str) -> None:
    """Queue a failed or cancelled job again, as a new run; raises Conflict for any other."""
    move(
        session, job_id, JobStatus.QUEUED,
        error=None, finished_at=None, cancel_requested=False, waiting_reason=None, result={},
    )  # fmt: skip
    runs.begin(session, session.get_one(Job, job_id, populate_existing=True))


def claimable(session: Session, pool: str, types: tuple[str, ...]) -> list[str]:
    """Ids of jobs of a pool that may be claimed, oldest first; running ones with a lost owner come first."""
    running = col(Job.status) == JobStatus.RUNNING
    expired = running & or_(col(Job.lease_expires_at).is_(None), col(Job.lease_expires_at) < now())
    statement = (
        select(col(Job.job_id))
        .where(
            col(Job.pool) == pool, col(Job.type).in_(types), or_(col(Job.status) == JobStatus.QUEUED, expired)
        )
        .order_by(running.desc(), col(Job.created_at), col(Job.job_id))
    )
    return list(session.execute(statement).scalars())


def explain_waiting(session: Session, pool: str, job_ids: Sequence[str], reason: str) -> None:
    """Write each queued job's place in the line and what the pool is busy with, where that has changed."""
    for position, job_id in enumerate(job_ids, start=1):
        sentence = f"position {position} in pool {pool}: {reason}"
        session.execute(
            update(Job)
            .where(
                col(Job.job_id) == job_id,
                col(Job.status) == JobStatus.QUEUED,
                col(Job.waiting_reason).is_distinct_from(sentence),
            )
            .values(waiting_reason=sentence)
        )


def renew(session: Session, job_id: str, timeline: int) -> Job:
    """Extend the owner's lease and return the fresh row; raises StaleTimeline when another owns the job."""
    statement = (
        update(Job)
        .where(col(Job.job_id) == job_id, col(Job.timeline) == timeline, col(Job.status) == JobStatus.RUNNING)
        .values(lease_expires_at=now() + timedelta(seconds=LEASE_S))
    )
    if _rows(session, statement) != 1:
        raise StaleTimeline(f"job {job_id} is no longer owned on timeline {timeline}")
    return session.get_one(Job, job_id, populate_existing=True)


def check_owner(session: Session, job_id: str, timeline: int) -> None:
    """Raise StaleTimeline unless `timeline` owns the running job; call it inside each owner's write."""
    statement = (
        update(Job)
        .where(col(Job.job_id) == job_id, col(Job.timeline) == timeline, col(Job.status) == JobStatus.RUNNING)
        .values(updated_at=now())
    )
    if _rows(session, statement) != 1:
        raise StaleTimeline(f"job {job_id} is no longer owned on timeline {timeline}")


def add_event(
    session: Session, org_id: str, job_id: str, type: str, message: str, *, level: str = "info", **data: Any
) -> None:
    """Append an event; its seq is the job's next."""
    # The counter's UPDATE locks the job's row, so two writers never draw one seq.
    seq = session.execute(
        update(Job)
        .where(col(Job.job_id) == job_id)
        .values(n_events=col(Job.n_events) + 1)
        .returning(col(Job.n_events))
    ).scalar_one()
    session.add(
        JobEvent(job_id=job_id, seq=seq, org_id=org_id, type=type, level=level, message=message, data=data)
    )
