"""Owning a job: the lease that a heartbeat renews, and the checks that every wait makes.

`OwnedJob.check` is called between all waits and micro-batches; it raises when the job was
cancelled, another trainer took over, or this process is asked to stop.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from sqlalchemy import update
from sqlmodel import Session, col

from headrace import log
from headrace.clock import now
from headrace.contracts.job import JobType
from headrace.errors import StaleTimeline
from headrace.store import heartbeats, jobs
from headrace.store.tables import Job
from headrace_trainer.context import Context

HEARTBEAT_S = 3.0

logger = log.get(__name__)


class JobCancelled(Exception):
    """The job's owner asked to cancel it."""


class ProcessStopping(Exception):
    """This process was asked to stop; the job stays running, for the next one to take over at once."""


class SlotLost(Exception):
    """Somebody else decides what the engine serves now; the job goes on when the engine is free again."""


class OwnedJob:
    """A claimed job on its timeline. Every write checks that the timeline still owns the job."""

    def __init__(
        self,
        context: Context,
        job: Job,
        timeline: int,
        stopping: threading.Event,
        is_slot_lost: Callable[[], bool] = lambda: False,
    ) -> None:
        self.context, self.row, self.timeline = context, job, timeline
        self.job_id, self.org_id = job.job_id, job.org_id
        self.prefix = JobType(job.type).value
        self._stopping, self._is_slot_lost = stopping, is_slot_lost
        self._cancelled, self._lost, self._done = threading.Event(), threading.Event(), threading.Event()
        if job.cancel_requested:  # of an owner that died before it could
            self._cancelled.set()
        self._last_event = time.monotonic()
        self._thread = threading.Thread(target=self._beat, name=f"lease {job.job_id}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop_beating()

    def check(self) -> None:
        if self._lost.is_set():
            raise StaleTimeline(f"job {self.job_id}: another owner took over from timeline {self.timeline}")
        if self._cancelled.is_set():
            raise JobCancelled
        if self._stopping.is_set():
            raise ProcessStopping
        if self._is_slot_lost():
            raise SlotLost

    def write(self, change: Callable[[Session], None]) -> None:
        """Run `change` in one transaction that this timeline must still own."""
        with self.context.store.write() as session:
            jobs.check_owner(session, self.job_id, self.timeline)
            change(session)

    def event(self, type: str, message: str, *, level: str = "info", **data: Any) -> None:
        self.write(lambda session: self.add_event(session, type, message, level=level, **data))

    def add_event(
        self, session: Session, type: str, message: str, *, level: str = "info", **data: Any
    ) -> None:
        jobs.add_event(session, self.org_id, self.job_id, type, message, level=level, **data)
        self._last_event = time.monotonic()

    def hand_over(self) -> None:
        """Let the lease lapse now, so that the next process need not wait for it."""
        self._stop_beating()  # a renewal that is under way would undo it
        with suppress(StaleTimeline):
            self.write(
                lambda session: session.execute(
                    update(Job).where(col(Job.job_id) == self.job_id).values(lease_expires_at=now())
                )  # type: ignore[arg-type]
            )

    def _stop_beating(self) -> None:
        self._done.set()
        if self._thread.is_alive():
            self._thread.join()

    def _beat(self) -> None:
        expires = time.monotonic() + jobs.LEASE_S
        while not self._done.wait(HEARTBEAT_S):
            try:
                self._renew()
                expires = time.monotonic() + jobs.LEASE_S
            except StaleTimeline:
                self._lost.set()
                return
            except Exception as error:
                # Mostly the database is away. Whatever it is: a silent end of this thread would leave a
                # job that no cancellation reaches, so it is tried until the lease has lapsed.
                logger.warning(
                    "lease.not_renewed", job_id=self.job_id, error=f"{type(error).__name__}: {error}"
                )
                if time.monotonic() > expires:
                    self._lost.set()
                    return

    def _renew(self) -> None:
        with self.context.store.write() as session:
            job = jobs.renew(session, self.job_id, self.timeline)
            alike = ("eval",) if self.prefix == "eval" else ("rl", "sft")
            waiting = jobs.claimable(session, job.pool, alike)
            jobs.explain_waiting(session, job.pool, waiting, f"the pool works on {self.job_id}")
            if job.cancel_requested:
                self._cancelled.set()
            if time.monotonic() - self._last_event > heartbeats.QUIET_S:
                self.add_event(session, heartbeats.event_type(self.prefix), "still running")
                heartbeats.prune(session, session.get_one(Job, self.job_id, populate_existing=True))
