"""Submission per job type, and what can be read of any job. `reads` is mounted under each family's path."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Body, Header, Query, Request, Response

from headrace.contracts.job import JobStatus, JobType
from headrace.errors import BadRequest
from headrace.store import progress
from headrace.store import runs as stored_runs
from headrace.store.jobs import get_job
from headrace.store.progress import JobFilter
from headrace_api.deps import BackendsDep, CallerDep
from headrace_api.jobs import again, service, shown
from headrace_api.jobs.views import (
    CheckpointList,
    CheckpointView,
    JobConfig,
    JobList,
    JobStatusView,
    JobView,
    Ledger,
    LedgerEntryView,
    LedgerSummaryView,
    Phase,
    Run,
    RunList,
    Timeline,
)  # fmt: skip

router = APIRouter(tags=["jobs"])
reads = APIRouter(tags=["jobs"])

Payload = Annotated[dict[str, Any], Body()]
IdempotencyKey = Annotated[str | None, Header()]
Limit = Annotated[int, Query(ge=1, le=1000)]


@router.post("/rl/jobs", status_code=201)
def create_rl_job(
    payload: Payload, backends: BackendsDep, caller: CallerDep, response: Response,
    idempotency_key: IdempotencyKey = None,
) -> JobView:  # fmt: skip
    return _create(JobType.RL, payload, backends, caller, response, idempotency_key)


@router.post("/learning/jobs", status_code=201)
@router.post("/sft/jobs", status_code=201, include_in_schema=False)
def create_sft_job(
    payload: Payload, backends: BackendsDep, caller: CallerDep, response: Response,
    idempotency_key: IdempotencyKey = None,
) -> JobView:  # fmt: skip
    return _create(JobType.SFT, payload, backends, caller, response, idempotency_key)


@router.post("/eval/jobs", status_code=201)
def create_eval_job(
    payload: Payload, backends: BackendsDep, caller: CallerDep, response: Response,
    idempotency_key: IdempotencyKey = None,
) -> JobView:  # fmt: skip
    return _create(JobType.EVAL, payload, backends, caller, response, idempotency_key)


def _create(
    job_type: JobType, payload: dict[str, Any], backends: BackendsDep, caller: CallerDep, response: Response,
    idempotency_key: str | None,
) -> JobView:  # fmt: skip
    job, is_new = service.submit(backends, caller.org_id, job_type, payload, idempotency_key)
    response.status_code = 201 if is_new else 200
    return shown.view(backends, job)


@router.get("/rl/jobs")
def list_rl_jobs(request: Request, backends: BackendsDep, caller: CallerDep, limit: Limit = 50) -> JobList:
    return _list(request, backends, caller, limit, JobType.RL)


@router.get("/sft/jobs")
def list_sft_jobs(request: Request, backends: BackendsDep, caller: CallerDep, limit: Limit = 50) -> JobList:
    return _list(request, backends, caller, limit, JobType.SFT)


@router.get("/eval/jobs")
def list_eval_jobs(request: Request, backends: BackendsDep, caller: CallerDep, limit: Limit = 50) -> JobList:
    return _list(request, backends, caller, limit, JobType.EVAL)


@router.get("/jobs")
@router.get("/learning/jobs")
def list_jobs(request: Request, backends: BackendsDep, caller: CallerDep, limit: Limit = 50) -> JobList:
    """Newest first; filters: type, status, pool, model, created_after, created_before, tag=k:v, data.k=v."""
    return _list(request, backends, caller, limit, None)


def _list(
    request: Request, backends: BackendsDep, caller: CallerDep, limit: int, job_type: JobType | None
) -> JobList:
    wanted = _filter(request, job_type)
    with backends.store.read() as session:
        after = request.query_params.get("after")
        last = get_job(session, caller.org_id, after) if after else None
        jobs, has_more = progress.list_jobs(session, caller.org_id, replace(wanted, after=last), limit)
        return JobList(jobs=shown.views(session, jobs), has_more=has_more)


def _filter(request: Request, job_type: JobType | None) -> JobFilter:
    query = request.query_params
    for name, known in (("type", JobType), ("status", JobStatus)):
        if name in query and query[name] not in set(known):
            raise BadRequest(f"{name} = {query[name]!r} is none of {', '.join(known)}")
    tags = [tuple(text.split(":", 1)) for text in query.getlist("tag")]
    if any(len(tag) != 2 for tag in tags):
        raise BadRequest("tag must be written as tag=<key>:<value>")
    data = [(key[5:], value) for key, value in query.multi_items() if key.startswith("data.")]
    return JobFilter(
        type=job_type or query.get("type"),
        status=query.get("status"),
        pool=query.get("pool"),
        model=query.get("model"),
        created_after=_time(query.get("created_after"), "created_after"),
        created_before=_time(query.get("created_before"), "created_before"),
        tags=tuple((key, value) for key, value in tags),
        data=tuple(data),
    )


def _time(text: str | None, name: str) -> datetime | None:
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise BadRequest(f"{name} = {text!r} is not an ISO 8601 time") from None


@reads.get("/{job_id}")
def get(job_id: str, backends: BackendsDep, caller: CallerDep) -> JobView:
    with backends.store.read() as session:
        return shown.views(session, [get_job(session, caller.org_id, job_id)])[0]


@reads.post("/{job_id}/cancel")
def cancel(job_id: str, backends: BackendsDep, caller: CallerDep) -> JobView:
    """A queued job is cancelled at once; a running one by its owner, soon."""
    return shown.view(backends, service.cancel(backends, caller.org_id, job_id))


@reads.post("/{job_id}/resume")
def resume(job_id: str, backends: BackendsDep, caller: CallerDep) -> JobView:
    """A failed or cancelled job is queued again and goes on from its newest whole checkpoint."""
    return shown.view(backends, again.resume(backends, caller.org_id, job_id))


@reads.post("/{job_id}/clone", status_code=201)
def clone(
    job_id: str, body: again.CloneRequest, backends: BackendsDep, caller: CallerDep, response: Response
) -> JobView:
    """A new job with the same config, with keys of it changed, or with another one."""
    job, is_new = again.clone(backends, caller.org_id, job_id, body)
    response.status_code = 201 if is_new else 200
    return shown.view(backends, job)


@reads.post("/{job_id}/start")
def start(job_id: str, backends: BackendsDep, caller: CallerDep) -> JobView:
    """For clients that create and start in two requests: a job is queued at creation."""
    return get(job_id, backends, caller)


@reads.get("/{job_id}/status")
def status(job_id: str, backends: BackendsDep, caller: CallerDep) -> JobStatusView:
    job = get(job_id, backends, caller)
    done = job.iteration / job.iterations if job.iterations else 0.0
    return JobStatusView(job_id=job_id, status=job.status, progress=done, updated_at=job.updated_at)


@reads.get("/{job_id}/config")
def config(job_id: str, backends: BackendsDep, caller: CallerDep) -> JobConfig:
    with backends.store.read() as session:
        job = get_job(session, caller.org_id, job_id)
    return JobConfig(submitted=job.config_submitted, toml=job.config_toml, resolved=job.config)


@reads.get("/{job_id}/timeline")
def timeline(job_id: str, backends: BackendsDep, caller: CallerDep, limit: Limit = 1000) -> Timeline:
    with backends.store.read() as session:
        job = get_job(session, caller.org_id, job_id)
        events = progress.events_after(session, job_id, 0, limit)
    phases = [Phase(**phase) for phase in service.phases(events, job)]
    return Timeline(job_id=job_id, events=phases, timeline=phases)


@reads.get("/{job_id}/runs")
def runs(job_id: str, backends: BackendsDep, caller: CallerDep) -> RunList:
    """One row each time the job was queued, oldest first."""
    with backends.store.read() as session:
        get_job(session, caller.org_id, job_id)
        return RunList(runs=[Run.of(row) for row in stored_runs.of_job(session, job_id)])


@reads.get("/{job_id}/checkpoints")
def checkpoints(job_id: str, backends: BackendsDep, caller: CallerDep) -> CheckpointList:
    root = backends.settings.artifacts
    with backends.store.read() as session:
        get_job(session, caller.org_id, job_id)
        rows = progress.checkpoints(session, caller.org_id, job_id)
    return CheckpointList(checkpoints=[CheckpointView.of(row, str(root / row.path)) for row in rows])


@reads.get("/{job_id}/ledger")
def ledger(job_id: str, backends: BackendsDep, caller: CallerDep) -> Ledger:
    with backends.store.read() as session:
        get_job(session, caller.org_id, job_id)
        entries, summary = progress.ledger(session, job_id)
    views = [LedgerEntryView.of(entry) for entry in entries]
    return Ledger(entries=views, summary=LedgerSummaryView(**asdict(summary)))
