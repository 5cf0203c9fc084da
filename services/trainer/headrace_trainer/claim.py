"""Claiming jobs, one at a time, and turning how a run ends into the job's status. Imports no torch.

SQL is the truth: a job is claimed by one conditional UPDATE. The wake-up list in Redis only saves
waiting; when it is lost, the look every few seconds finds the job.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace

import redis
from sqlalchemy.exc import OperationalError
from sqlmodel import Session

from headrace import log
from headrace.artifacts.files import ArtifactStore
from headrace.config.pools import find_pool, find_topology
from headrace.contracts.job import JobStatus, JobType
from headrace.errors import HeadraceError, StaleTimeline
from headrace.queue import names
from headrace.queue.alive import beating
from headrace.queue.connect import connect
from headrace.queue.slots import SlotClaim
from headrace.settings import Settings
from headrace.store import jobs, ledger, plan
from headrace.store.session import Store
from headrace_trainer.context import Context
from headrace_trainer.ownership import JobCancelled, OwnedJob, ProcessStopping, SlotLost

LOOK_EVERY_S = 2

logger = log.get(__name__)

Run = Callable[[OwnedJob, SlotClaim], None]
"""Runs a claimed job to its end; it moves the job to `succeeded` itself, in its last transaction."""


def serve_jobs(process: str, types: tuple[str, ...], runs: Mapping[str, Run]) -> None:
    """Claim and run jobs of these types in this process's pool and slot until SIGTERM."""
    log.configure(process)
    settings = Settings()
    context = make_context(settings)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    logger.info("process.ready", pool=settings.pool, slot=settings.slot)
    with beating(context.redis, process):
        while not stopping.is_set():
            try:
                _wait_for_wakeup(context, types)
                run_next(context, types, runs, stopping)
            except (redis.RedisError, OperationalError) as error:
                logger.warning("dependency.unavailable", error=str(error))
                stopping.wait(LOOK_EVERY_S)


def make_context(settings: Settings) -> Context:
    _, pool = find_pool(settings.pool)
    _, topology = find_topology(pool, None)
    return Context(
        settings,
        Store(settings.sql_url),
        connect(settings.redis_url),
        ArtifactStore(settings.artifacts),
        topology,
    )


def run_next(
    context: Context, types: tuple[str, ...], runs: Mapping[str, Run], stopping: threading.Event
) -> bool:
    """Claim the next job and run it; False when there was none to claim."""
    with context.store.read() as session:
        waiting = jobs.claimable(session, context.settings.pool, types)
    if not waiting:
        return False
    slot = SlotClaim(context.redis, context.settings.pool, context.settings.slot, waiting[0])
    if not slot.try_acquire() and not _needs_no_engine(context, waiting[0]):
        _say_why_they_wait(
            context, waiting, f"the pool's engine is in use by {slot.holder() or 'another job'}"
        )
        return False
    try:
        job = _claim(context, waiting[0], stopping, slot)
        if job is None:
            return False
        _say_why_they_wait(context, waiting[1:], f"the pool works on {job.job_id}")
        logger.info("job.claimed", job_id=job.job_id, timeline=job.timeline)
        with job:
            _run(job, slot, runs[job.row.type])
        return True
    finally:
        slot.release()


def _needs_no_engine(context: Context, job_id: str) -> bool:
    with context.store.read() as session:
        return jobs.get_job(session, None, job_id).type == JobType.SFT


def _claim(context: Context, job_id: str, stopping: threading.Event, slot: SlotClaim) -> OwnedJob | None:
    owner = f"{socket.gethostname()}:{os.getpid()}"
    with context.store.write() as session:
        timeline = jobs.claim(session, job_id, owner)
        if timeline is None:
            return None
        row = jobs.get_job(session, None, job_id)
        session.refresh(row)
    _, topology = find_topology(find_pool(row.pool)[1], row.topology)
    return OwnedJob(replace(context, topology=topology), row, timeline, stopping, lambda: slot.is_lost)


def _run(job: OwnedJob, slot: SlotClaim, run: Run) -> None:
    try:
        job.check()
        run(job, slot)
    except StaleTimeline as error:
        logger.warning("job.lost", job_id=job.job_id, reason=str(error))
        job.hand_over()  # where only the engine has another owner; changes nothing where the job has
    except (ProcessStopping, SlotLost) as reason:
        job.hand_over()
        logger.info("job.handed_over", job_id=job.job_id, reason=type(reason).__name__)
    except JobCancelled:
        _end(job, JobStatus.CANCELLED, "cancelled by its owner")
    except (redis.RedisError, OperationalError):
        job.hand_over()
        raise
    except HeadraceError as error:
        _end(job, JobStatus.FAILED, error.message)
    except Exception as error:
        # The boundary between a job and the process: the next job must not suffer from this one.
        logger.exception("job.broke", job_id=job.job_id)
        _end(job, JobStatus.FAILED, f"internal error: {type(error).__name__}: {error}")


def _end(job: OwnedJob, status: JobStatus, reason: str) -> None:
    def write(session: Session) -> None:
        plan.cancel_open(session, job.job_id, reason)
        ledger.close(session, job.job_id, f"{status.value}: {reason}")
        level = "error" if status is JobStatus.FAILED else "info"
        job.add_event(session, f"{job.prefix}.job.{status.value}", reason, level=level)
        error = reason if status is JobStatus.FAILED else None
        jobs.move(session, job.job_id, status, timeline=job.timeline, error=error)

    try:
        job.write(write)
    except StaleTimeline as error:
        logger.warning("job.lost", job_id=job.job_id, reason=str(error))
        return
    # Orders still in the queue become no-ops, whatever the workers' clocks say.
    job.context.redis.set(names.cancelled(job.job_id), status.value, ex=86400)


def _say_why_they_wait(context: Context, job_ids: list[str], reason: str) -> None:
    if job_ids:
        with context.store.write() as session:
            jobs.explain_waiting(session, context.settings.pool, job_ids, reason)


def _wait_for_wakeup(context: Context, types: tuple[str, ...]) -> None:
    keys = sorted({names.job_wakeup(context.settings.pool, job_type) for job_type in types})
    context.redis.blpop(keys, timeout=LOOK_EVERY_S)
