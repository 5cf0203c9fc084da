"""Jobs with what their first events say of their config, as every answer shows them."""

from __future__ import annotations

from collections.abc import Sequence

from sqlmodel import Session

from headrace.store import progress
from headrace.store.tables import Job
from headrace_api.deps import Backends
from headrace_api.jobs.views import JobView


def views(session: Session, jobs: Sequence[Job]) -> list[JobView]:
    """In the order of `jobs`."""
    notes = progress.config_events(session, [job.job_id for job in jobs])
    return [JobView.of(job, notes.get(job.job_id, ())) for job in jobs]


def view(backends: Backends, job: Job) -> JobView:
    with backends.store.read() as session:
        return views(session, [job])[0]
