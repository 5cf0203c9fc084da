"""Events that only say that a job is still there: pollers of the contract give up on a job without any.

They carry nothing else, so all but the newest few of a job are removed as new ones come; `seq` goes on
rising, and a reader behind a cursor misses nothing that matters.
"""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import delete, select
from sqlmodel import Session, col

from headrace.clock import now
from headrace.contracts.job import JobStatus
from headrace.store.jobs import add_event
from headrace.store.tables import Job, JobEvent

QUIET_S = 8.0
"""A job without a new event for so long gets one."""
KEPT = 5
LOOKED_BACK = 500
"""Events among which older heartbeats are looked for; each was among the newest when it came."""


def event_type(job_type: str) -> str:
    """`rl.job.heartbeat`."""
    return f"{job_type}.job.heartbeat"


def is_quiet(session: Session, job: Job) -> bool:
    """Whether an unfinished job has said nothing for `QUIET_S`."""
    if JobStatus(job.status).is_terminal:
        return False
    newest = session.get(JobEvent, (job.job_id, job.n_events))
    return newest is None or now() - newest.created_at > timedelta(seconds=QUIET_S)


def beat(session: Session, job_id: str) -> None:
    """Write the heartbeat of a job that is (still) quiet."""
    job = session.get(Job, job_id, populate_existing=True, with_for_update=True)
    if job is not None and is_quiet(session, job):
        message = job.waiting_reason or job.paused_reason or f"still {job.status}"
        add_event(session, job.org_id, job_id, event_type(job.type), message)
        prune(session, job)


def prune(session: Session, job: Job) -> None:
    """Remove all but the newest heartbeats."""
    session.flush()
    beats = (
        select(col(JobEvent.seq))
        .where(
            col(JobEvent.job_id) == job.job_id,
            col(JobEvent.seq) > job.n_events - LOOKED_BACK,
            col(JobEvent.type) == event_type(job.type),
        )
        .order_by(col(JobEvent.seq).desc())
    )
    superseded = list(session.execute(beats).scalars())[KEPT:]
    if superseded:
        session.execute(
            delete(JobEvent).where(col(JobEvent.job_id) == job.job_id, col(JobEvent.seq).in_(superseded))
        )
