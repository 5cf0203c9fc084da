"""Storing a submitted job once per idempotency key, however many requests carry the key at once."""

from __future__ import annotations

from sqlalchemy import select
from sqlmodel import Session, col

from headrace.errors import Conflict
from headrace.store import runs
from headrace.store.insert import insert_new
from headrace.store.tables import Job


def find(session: Session, org_id: str, idempotency_key: str | None, body_sha256: str) -> Job | None:
    """The job that the key made before; raises Conflict when that request had another body."""
    if idempotency_key is None:
        return None
    statement = select(Job).where(col(Job.org_id) == org_id, col(Job.idempotency_key) == idempotency_key)
    job = session.execute(statement).scalar_one_or_none()
    if job is not None and job.body_sha256 != body_sha256:
        raise Conflict(
            f"Idempotency-Key {idempotency_key!r} was used for another request (job {job.job_id}); "
            "use a new key for a new job"
        )
    return job


def insert(session: Session, job: Job) -> tuple[Job, bool]:
    """Insert the job, or return the one that came first under its key; True when it is new."""
    if insert_new(session, [job]) == 1:
        stored = session.get_one(Job, job.job_id)
        runs.begin(session, stored)
        return stored, True
    earlier = find(session, job.org_id, job.idempotency_key, job.body_sha256)
    assert earlier is not None, "only the idempotency key can be taken"
    return earlier, False
