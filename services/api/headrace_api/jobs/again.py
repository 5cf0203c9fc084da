"""A job once more: the same one queued again, or a new one like it."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from headrace.config.load import load
from headrace.config.paths import with_value
from headrace.contracts.job import JobStatus, JobType
from headrace.errors import ConfigError, Conflict
from headrace.store.jobs import add_event, get_job, requeue
from headrace.store.tables import Job
from headrace_api.deps import Backends
from headrace_api.jobs import service
from headrace_api.jobs.request_tables import Json
from headrace_api.jobs.submission import read


class CloneRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    config: dict[str, Any] | None = None
    """A whole config in place of the job's own."""
    overrides: dict[str, Any] | None = None
    """Dotted key (`training.learning_rate`) -> value, over the config."""
    idempotency_key: str | None = None


def resume(backends: Backends, org_id: str, job_id: str) -> Job:
    """Queue a failed or cancelled job as a new run; raises Conflict for any other."""
    with backends.store.write() as session:
        job = get_job(session, org_id, job_id)
        if job.status not in (JobStatus.FAILED, JobStatus.CANCELLED):
            raise Conflict(
                f"job {job_id} is {job.status}; only a failed or cancelled job is resumed, and any job can be cloned"
            )
        requeue(session, job_id)
        message = "the job was queued again; it goes on from its newest checkpoint"
        add_event(session, org_id, job_id, f"{job.type}.job.resumed", message)
        session.expire_all()
        job = get_job(session, org_id, job_id)
        session.refresh(job)
    service.wake(backends, job)  # whoever takes the job over lowers the flag of a cancellation
    return job


def clone(backends: Backends, org_id: str, job_id: str, request: CloneRequest) -> tuple[Job, bool]:
    """Submit the job's config, changed as asked and checked as strictly as our own command's.

    See `service.submit`. A model that may only be used when it is allowed stays allowed.
    """
    with backends.store.read() as session:
        job = get_job(session, org_id, job_id)
    config = _own_config(job) if request.config is None else request.config
    for key, value in (request.overrides or {}).items():
        config = with_value(config, key, value)
    payload, job_type = _payload(job, config), JobType(job.type)
    payload["allow_experimental"] = read(job_type, payload).model == job.model
    return service.submit(backends, org_id, job_type, payload, request.idempotency_key)


def _own_config(job: Job) -> Json:
    """The config as it came, where it says all that the job runs; else what the job runs.

    A request may name the task app, the model and more beside its config, and another client's config
    may hold keys that have no meaning here.
    """
    try:
        told = load(job.config_submitted, JobType(job.type), strict=True).config.model_dump(mode="json")
    except ConfigError:
        return job.config
    return job.config_submitted if told == job.config else job.config


def _payload(job: Job, config: Json) -> Json:
    metadata = {**job.job_metadata, "cloned_from": job.job_id}
    payload: Json = {"job_type": job.type, "strict": True, "metadata": metadata}
    match JobType(job.type):
        case JobType.RL:
            return payload | {"data": {"config": config}}
        case JobType.SFT:
            return payload | {"config": config} | job.data
        case JobType.EVAL:
            return payload | {"config": config}
