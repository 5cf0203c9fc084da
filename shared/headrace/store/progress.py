"""What the API reads of jobs: lists, events, metric points, checkpoints and the ledger's sum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, func, or_, select
from sqlmodel import Session, col

from headrace.ids import TRAIN
from headrace.store.tables import Checkpoint, Job, JobEvent, LedgerEntry, Metric, Rollout

FIRST_EVENTS = 200
"""A submission writes fewer, all before any other process knows the job."""


@dataclass(frozen=True)
class JobFilter:
    """Conditions of a job list; None admits all. `tags` and `data` compare as text."""

    type: str | None = None
    status: str | None = None
    pool: str | None = None
    model: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    tags: tuple[tuple[str, str], ...] = ()
    data: tuple[tuple[str, str], ...] = ()
    after: Job | None = None
    """The last job of the page before."""

    def admits(self, job: Job) -> bool:
        """Whether the JSON columns fit; the others are compared in SQL."""
        return _has(job.tags, self.tags) and _has(job.data, self.data)


def _has(table: dict, wanted: Sequence[tuple[str, str]]) -> bool:
    return all(key in table and str(table[key]) == value for key, value in wanted)


def list_jobs(session: Session, org_id: str, wanted: JobFilter, limit: int) -> tuple[list[Job], bool]:
    """A page, newest first, and whether there are more."""
    jobs = _newest_first(session, org_id, wanted, limit + 1)
    return jobs[:limit], len(jobs) > limit


def _within(wanted: JobFilter) -> list[ColumnElement[bool]]:
    """The conditions on time and on the page."""
    found: list[ColumnElement[bool]] = []
    if wanted.created_after is not None:
        found.append(col(Job.created_at) > wanted.created_after)
    if wanted.created_before is not None:
        found.append(col(Job.created_at) < wanted.created_before)
    if wanted.after is not None:
        found.append(_is_behind(wanted.after))
    return found


def _is_behind(last: Job) -> ColumnElement[bool]:
    """Older than `last`, in the order of lists."""
    is_older = col(Job.created_at) < last.created_at
    return is_older | ((col(Job.created_at) == last.created_at) & (col(Job.job_id) > last.job_id))


def _newest_first(session: Session, org_id: str, wanted: JobFilter, limit: int) -> list[Job]:
    statement = select(Job).where(col(Job.org_id) == org_id)
    for column, value in ((Job.type, wanted.type), (Job.status, wanted.status), (Job.pool, wanted.pool)):
        if value is not None:
            statement = statement.where(col(column) == value)
    if wanted.model is not None:
        statement = statement.where((col(Job.model) == wanted.model) | (col(Job.model_id) == wanted.model))
    statement = statement.where(*_within(wanted))
    statement = statement.order_by(col(Job.created_at).desc(), col(Job.job_id))
    if not (wanted.tags or wanted.data):
        return list(session.execute(statement.limit(limit)).scalars())
    found: list[Job] = []
    for job in session.execute(statement.execution_options(yield_per=200)).scalars():
        if wanted.admits(job):
            found.append(job)
        if len(found) == limit:
            break
    return found


def finished_models(session: Session, org_id: str, limit: int, job_type: str | None = None) -> list[Job]:
    """Jobs that ended with a model id, newest first."""
    statement = select(Job).where(col(Job.org_id) == org_id, col(Job.model_id).is_not(None))
    if job_type is not None:
        statement = statement.where(col(Job.type) == job_type)
    statement = statement.order_by(col(Job.finished_at).desc(), col(Job.job_id)).limit(limit)
    return list(session.execute(statement).scalars())


def config_events(session: Session, job_ids: Sequence[str]) -> dict[str, list[JobEvent]]:
    """What was said of each job's config when it was made, by job id; jobs without any are left out."""
    type_ = col(JobEvent.type)
    statement = (
        select(JobEvent)
        .where(
            col(JobEvent.job_id).in_(job_ids),
            col(JobEvent.seq) <= FIRST_EVENTS,
            or_(type_.like("%.config.%"), type_.like("%.model.mapped")),
        )
        .order_by(col(JobEvent.job_id), col(JobEvent.seq))
    )
    found: dict[str, list[JobEvent]] = {}
    for event in session.execute(statement).scalars():
        found.setdefault(event.job_id, []).append(event)
    return found


def events_after(session: Session, job_id: str, since_seq: int, limit: int) -> list[JobEvent]:
    """Events with a greater seq, oldest first."""
    statement = (
        select(JobEvent)
        .where(col(JobEvent.job_id) == job_id, col(JobEvent.seq) > since_seq)
        .order_by(col(JobEvent.seq))
        .limit(limit)
    )
    return list(session.execute(statement).scalars())


def metric_points(
    session: Session, job_id: str, after_step: int, name: str | None, limit: int
) -> list[Metric]:
    """Points of later steps, by step and name. `limit` cuts between steps, never inside one.

    Clients go on from the largest step they have seen, so a step of which they saw a part would
    never be completed; a first step above the limit is therefore returned whole.
    """
    statement = select(Metric).where(col(Metric.job_id) == job_id, col(Metric.step) > after_step)
    if name is not None:
        statement = statement.where(col(Metric.name) == name)
    ordered = statement.order_by(col(Metric.step), col(Metric.name))
    points = list(session.execute(ordered.limit(limit + 1)).scalars())
    if len(points) <= limit:
        return points
    cut = points[-1].step
    if points[0].step == cut:
        return list(session.execute(ordered.where(col(Metric.step) == cut)).scalars())
    return [point for point in points if point.step < cut]


def checkpoints(session: Session, org_id: str, job_id: str) -> list[Checkpoint]:
    """Newest first."""
    statement = (
        select(Checkpoint)
        .where(col(Checkpoint.org_id) == org_id, col(Checkpoint.job_id) == job_id)
        .order_by(col(Checkpoint.timeline).desc(), col(Checkpoint.iteration).desc())
    )
    return list(session.execute(statement).scalars())


@dataclass(frozen=True)
class LedgerSummary:
    """Whether each planned training rollout is accounted for: trained once, or not with a reason."""

    planned: int
    trained: int
    not_trained: dict[str, int]
    is_complete: bool


def ledger(session: Session, job_id: str) -> tuple[list[LedgerEntry], LedgerSummary]:
    """The rows in order of iteration, and their sum against the plan."""
    statement = (
        select(LedgerEntry)
        .where(col(LedgerEntry.job_id) == job_id)
        .order_by(col(LedgerEntry.iteration), col(LedgerEntry.rollout_id))
    )
    entries = list(session.execute(statement).scalars())
    planned_rows = select(col(Rollout.rollout_id)).where(
        col(Rollout.job_id) == job_id, col(Rollout.purpose) == TRAIN
    )
    planned = session.execute(select(func.count()).select_from(planned_rows.subquery())).scalar_one()
    ids = select(col(LedgerEntry.rollout_id)).where(col(LedgerEntry.job_id) == job_id)
    missing = planned_rows.where(col(Rollout.rollout_id).not_in(ids)).limit(1)
    reasons = Counter(entry.not_trained_reason or "no reason" for entry in entries if entry.step is None)
    summary = LedgerSummary(
        planned=planned,
        trained=sum(entry.step is not None for entry in entries),
        not_trained=dict(reasons.most_common()),
        is_complete=session.execute(missing).first() is None and len(entries) == planned,
    )
    return entries, summary
