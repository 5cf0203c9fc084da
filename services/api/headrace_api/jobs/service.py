"""Rules of jobs: what may be submitted, once per idempotency key, and how one is cancelled."""

from __future__ import annotations

import hashlib
from typing import Any

import redis
from sqlalchemy import update
from sqlmodel import Session, col

from headrace import log
from headrace.clock import now
from headrace.config.evaluation import EvalConfig
from headrace.config.pools import Pool, find_pool, find_topology
from headrace.config.rl import RLConfig
from headrace.config.sft import SFTConfig
from headrace.contracts.job import JobStatus, JobType
from headrace.errors import BadRequest, ConfigError, Conflict, NotFound
from headrace.ids import new_id
from headrace.queue import names
from headrace.store import files, submissions
from headrace.store.jobs import add_event, get_job, move
from headrace.store.models import ResolvedModel, resolve_model
from headrace.store.tables import Job
from headrace_api.deps import Backends
from headrace_api.jobs.submission import Json, Submission, canonical, read

CANCEL_FLAG_S = 7 * 24 * 3600
MAX_IDEMPOTENCY_KEY = 255

logger = log.get(__name__)


def submit(
    backends: Backends, org_id: str, job_type: JobType, payload: Json, idempotency_key: str | None
) -> tuple[Job, bool]:
    """Store a job and wake its pool; the same key and payload return the first job and False."""
    if idempotency_key is not None and not 0 < len(idempotency_key) <= MAX_IDEMPOTENCY_KEY:
        raise BadRequest(f"Idempotency-Key must have 1 to {MAX_IDEMPOTENCY_KEY} characters")
    body = hashlib.sha256(f"{job_type}\n".encode() + canonical(payload)).hexdigest()
    with backends.store.read() as session:
        earlier = submissions.find(session, org_id, idempotency_key, body)
        if earlier is not None:
            return earlier, False
        submission = read(job_type, payload)
        job, model = _plan(session, backends, org_id, submission)
    job.idempotency_key, job.body_sha256 = idempotency_key, body
    with backends.store.write() as session:
        stored, is_new = submissions.insert(session, job)
        if is_new:
            _write_first_events(session, stored, submission, model)
    if is_new:
        wake(backends, stored)
    return stored, is_new


def _plan(
    session: Session, backends: Backends, org_id: str, submission: Submission
) -> tuple[Job, ResolvedModel]:
    """Check what the config refers to, and make the row."""
    config = submission.config
    pool_name, pool = find_pool(config.backend.compute_pool)
    topology, _ = find_topology(pool, config.backend.topology_id)
    _check_limits(config, pool_name, pool)
    model = resolve_model(
        session, org_id, submission.model, backends.settings,
        allow_experimental=submission.allow_experimental,
    )  # fmt: skip
    job = Job(
        job_id=new_id("job"),
        org_id=org_id,
        type=submission.job_type,
        status=JobStatus.QUEUED,
        pool=pool_name,
        topology=topology,
        model=submission.model,
        config_submitted=submission.submitted,
        config_toml=submission.toml,
        config=config.model_dump(mode="json"),
        tags=dict(config.tags),
        data=submission.data,
        job_metadata=submission.metadata,
        body_sha256="",
        iterations=_planned_iterations(session, org_id, submission),
    )
    return job, model


def _planned_iterations(session: Session, org_id: str, submission: Submission) -> int:
    """Iterations of RL, optimiser steps of SFT, rollouts of an evaluation."""
    config = submission.config
    if isinstance(config, RLConfig):
        return config.iterations
    if isinstance(config, EvalConfig):
        _check_baseline(session, org_id, config)
        return len(config.evaluation_job.seeds) * config.evaluation_job.samples
    n_rows = {key: _rows_of_file(session, org_id, key, file_id) for key, file_id in submission.data.items()}
    steps = config.hyperparameters.n_epochs * -(-n_rows["training_file_id"] // config.conversations_per_step)
    return min(steps, config.hyperparameters.max_steps or steps)


def _rows_of_file(session: Session, org_id: str, key: str, file_id: str) -> int:
    try:
        file = files.get_file(session, org_id, file_id)
    except NotFound:
        raise _error(f"{key} = {file_id!r} does not exist; upload it with POST /files") from None
    if file.status != files.READY:
        raise _error(f"{key} = {file_id!r} is {file.status}, not ready; wait for it or upload it again")
    return file.n_rows or 0


def _check_limits(config: RLConfig | SFTConfig | EvalConfig, pool_name: str, pool: Pool) -> None:
    if isinstance(config, RLConfig):
        prompts, members = config.prompts_per_iteration, config.group_size
        if prompts * members > pool.max_rollouts_per_iteration:
            raise _error(
                f"prompts x rollouts per prompt is {prompts} x {members} = {prompts * members}, above the "
                f"{pool.max_rollouts_per_iteration} rollouts per iteration of pool {pool_name!r}; plan fewer"
            )
    deadline_s = (
        config.training.rollouts.deadline_s if isinstance(config, RLConfig)
        else config.evaluation_job.deadline_s if isinstance(config, EvalConfig)
        else 0.0
    )  # fmt: skip
    if deadline_s > pool.max_deadline_s:
        raise _error(
            f"deadline_s = {deadline_s:g} is above the {pool.max_deadline_s:g} s of pool {pool_name!r}; lower it"
        )


def _check_baseline(session: Session, org_id: str, config: EvalConfig) -> None:
    name = config.evaluation_job.baseline
    if name is None:
        return
    try:
        baseline = get_job(session, org_id, name)
    except NotFound:
        raise _error(f"[evaluation_job] baseline = {name!r} does not exist; give a job id") from None
    if baseline.type != JobType.EVAL or baseline.status != JobStatus.SUCCEEDED:
        raise _error(
            f"[evaluation_job] baseline = {name!r} is {baseline.type} job that is {baseline.status}; give an "
            "evaluation job that succeeded"
        )
    if set(baseline.config["evaluation_job"]["seeds"]) != set(config.evaluation_job.seeds):
        raise _error(
            f"[evaluation_job] baseline = {name!r} played other seeds; a paired difference needs the same"
        )


def _write_first_events(session: Session, job: Job, submission: Submission, model: ResolvedModel) -> None:
    created = "rl.job.created" if job.type == JobType.RL else f"{job.type}.created"
    message = f"{job.type} job for {job.model} was created in pool {job.pool}"
    add_event(session, job.org_id, job.job_id, created, message, model=job.model, pool=job.pool)
    if model.is_alias:
        add_event(
            session, job.org_id, job.job_id, f"{job.type}.model.mapped",
            f"{model.name} stands for {model.path} on this server", path=str(model.path),
        )  # fmt: skip
    for note in submission.notes:
        add_event(session, job.org_id, job.job_id, note.type, note.message, level=note.level, **note.data)


def wake(backends: Backends, job: Job) -> None:
    """Tell the pool's trainers. SQL is the truth and they look there too, so this may fail."""
    try:
        backends.redis.lpush(names.job_wakeup(job.pool, job.type), job.job_id)
    except redis.RedisError as error:
        logger.warning("job.wakeup_failed", job_id=job.job_id, error=str(error))


def cancel(backends: Backends, org_id: str, job_id: str) -> Job:
    """Cancel a queued job at once; ask the owner of a running one. Repeating it is harmless."""
    with backends.store.write() as session:
        job = get_job(session, org_id, job_id)
        if job.status == JobStatus.CANCELLED:
            return job
        if _cancel_queued(session, job):
            message = "the job was cancelled before it started"
            add_event(session, org_id, job_id, f"{job.type}.job.cancelled", message)
        elif _request_cancel(session, job):
            message = "cancellation was requested"
            add_event(session, org_id, job_id, f"{job.type}.job.cancel_requested", message)
        session.expire_all()
        job = get_job(session, org_id, job_id)
        if JobStatus(job.status).is_terminal and job.status != JobStatus.CANCELLED:
            raise Conflict(f"job {job_id} has {job.status} already and cannot be cancelled")
        session.refresh(job)
    if job.cancel_requested:
        _raise_flag(backends, job_id)
    return job


def _cancel_queued(session: Session, job: Job) -> bool:
    """Whether the job was still queued; a trainer may claim it at this moment."""
    try:
        if job.status == JobStatus.QUEUED:
            move(session, job.job_id, JobStatus.CANCELLED, timeline=job.timeline)
            return True
    except Conflict:
        pass
    return False


def _request_cancel(session: Session, job: Job) -> bool:
    """Whether the wish is new on a running job."""
    statement = (
        update(Job)
        .where(
            col(Job.job_id) == job.job_id,
            col(Job.status) == JobStatus.RUNNING,
            col(Job.cancel_requested).is_(False),
        )
        .values(cancel_requested=True, updated_at=now())
        .returning(col(Job.job_id))
    )
    return session.execute(statement).first() is not None


def _raise_flag(backends: Backends, job_id: str) -> None:
    """Let workers see the cancellation at once; the owner also reads it from SQL."""
    try:
        backends.redis.set(names.cancelled(job_id), 1, ex=CANCEL_FLAG_S)
    except redis.RedisError as error:
        logger.warning("job.cancel_flag_failed", job_id=job_id, error=str(error))


def phases(events: list[Any], job: Job) -> list[dict[str, Any]]:
    """The phases that a job has been through, from its events."""
    found = []
    for event in events:
        phase = _PHASES.get(event.type)
        if phase is not None and (not found or found[-1]["phase"] != phase):
            found.append({"phase": phase, "metadata": event.data, "created_at": event.created_at})
    if JobStatus(job.status).is_terminal:
        found.append({"phase": job.status, "metadata": {}, "created_at": job.finished_at})
    return found


_PHASES = {
    "rl.job.created": "queued",
    "sft.created": "queued",
    "eval.created": "queued",
    "rl.policy.starting": "initializing",
    "rl.train.started": "training",
    "sft.training.started": "training",
    "eval.started": "evaluating",
}


def _error(sentence: str) -> ConfigError:
    return ConfigError(sentence, problems=[sentence])
