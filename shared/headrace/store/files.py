"""Uploaded datasets; the bytes lie among the artifacts."""

from __future__ import annotations

from sqlalchemy import select
from sqlmodel import Session, col

from headrace.contracts.job import JobStatus
from headrace.errors import NotFound
from headrace.store.tables import Job, StoredFile

READY = "ready"


def get_file(session: Session, org_id: str, file_id: str) -> StoredFile:
    row = session.get(StoredFile, file_id)
    if row is None or row.org_id != org_id:
        raise NotFound(f"no file {file_id!r}")
    return row


def list_files(
    session: Session, org_id: str, purpose: str | None, limit: int, after: str | None = None
) -> tuple[list[StoredFile], bool]:
    """A page behind the file `after`, newest first, and whether there are more."""
    statement = select(StoredFile).where(col(StoredFile.org_id) == org_id)
    if after is not None:
        last = get_file(session, org_id, after)
        statement = statement.where(
            (col(StoredFile.created_at) < last.created_at)
            | ((col(StoredFile.created_at) == last.created_at) & (col(StoredFile.file_id) > last.file_id))
        )
    if purpose is not None:
        statement = statement.where(col(StoredFile.purpose) == purpose)
    ordered = statement.order_by(col(StoredFile.created_at).desc(), col(StoredFile.file_id))
    rows = list(session.execute(ordered.limit(limit + 1)).scalars())
    return rows[:limit], len(rows) > limit


def jobs_using(session: Session, org_id: str, file_id: str, *, unfinished: bool = False) -> list[Job]:
    """SFT jobs whose data names the file, newest first."""
    statement = select(Job).where(col(Job.org_id) == org_id, col(Job.type) == "sft")
    if unfinished:
        statement = statement.where(col(Job.status).in_((JobStatus.QUEUED, JobStatus.RUNNING)))
    jobs = session.execute(statement.order_by(col(Job.created_at).desc())).scalars()
    return [job for job in jobs if file_id in file_ids(job)]


def file_ids(job: Job) -> list[str]:
    """Ids of the files that an SFT job reads: training, then validation where there is one."""
    ids = (job.data.get("training_file_id"), job.data.get("validation_file_id"))
    return [file_id for file_id in ids if file_id is not None]
