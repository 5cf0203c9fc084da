"""The runs of a job: one row each time it is queued. The newest follows the job's status."""

from __future__ import annotations

from typing import Any

from sqlalchemy import func, select, update
from sqlmodel import Session, col

from headrace.clock import now
from headrace.contracts.job import JobStatus
from headrace.store.tables import Job, JobRun


def begin(session: Session, job: Job) -> None:
    """The job is queued: the first run, or the next one."""
    newest = select(func.max(JobRun.run_number)).where(col(JobRun.job_id) == job.job_id)
    number = (session.execute(newest).scalar() or 0) + 1
    session.add(JobRun(job_id=job.job_id, run_number=number, org_id=job.org_id, status=JobStatus.QUEUED))
    session.flush()


def follow(session: Session, job_id: str, status: JobStatus) -> None:
    """Give the newest run the status that the job has just got."""
    values: dict[str, Any] = {"status": status}
    if status is JobStatus.RUNNING:
        values["started_at"] = func.coalesce(col(JobRun.started_at), now())
    if status.is_terminal:
        values["ended_at"] = now()
    newest = select(func.max(JobRun.run_number)).where(col(JobRun.job_id) == job_id).scalar_subquery()
    session.execute(
        update(JobRun)
        .where(col(JobRun.job_id) == job_id, col(JobRun.run_number) == newest)
        .values(**values)
        .execution_options(synchronize_session=False)
    )


def of_job(session: Session, job_id: str) -> list[JobRun]:
    """Oldest first."""
    statement = select(JobRun).where(col(JobRun.job_id) == job_id).order_by(col(JobRun.run_number))
    return list(session.execute(statement).scalars())
