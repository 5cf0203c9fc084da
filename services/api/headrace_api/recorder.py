"""`python -m headrace_api.recorder`: writes rollouts, attempts, rewards and traces as they come.

It reads every active trajectory stream as a consumer group of its own, so that results show at once
however busy the trainer is. A trace is durable before its row, rows are committed before their
entries are acknowledged, and every write is idempotent: a kill at any point loses nothing and
doubles nothing.
"""

from __future__ import annotations

import signal
import threading
import time
from dataclasses import dataclass, field
from datetime import timedelta

import redis
import zstandard
from pydantic import ValidationError
from sqlalchemy.exc import SQLAlchemyError

from headrace import log
from headrace.artifacts.files import ArtifactStore
from headrace.clock import now
from headrace.contracts.job import JobStatus
from headrace.contracts.trajectory import Trajectory
from headrace.errors import Unavailable
from headrace.queue import names
from headrace.queue.alive import beating
from headrace.queue.connect import connect
from headrace.queue.streams import (
    RECORDER_GROUP,
    Entry,
    StreamReader,
    close_stream,
    open_stream,
    trim_acknowledged,
)
from headrace.settings import Settings
from headrace.store.migrate import upgrade
from headrace.store.recording import Recorded, record
from headrace.store.session import Store
from headrace.store.tables import Job

WAIT_S = 0.5
"""One pass over all streams waits about so long when none has anything new."""
RETRY_S = 1.0
"""Pause before a stream, or everything, is tried again after a fault outside."""
BATCH = 100
"""Entries of one stream per pass, so that a busy job starves no other."""
CLOSE_AFTER_S = 30.0
"""A finished job's stream stays this long for attempts that workers still push."""

logger = log.get(__name__)


@dataclass
class _Stream:
    """What the recorder knows of one job's stream."""

    reader: StreamReader
    has_unacknowledged: bool = True
    """Entries delivered earlier may be open: after a start, and after a fault."""
    retry_at: float = 0.0


@dataclass
class Recorder:
    store: Store
    redis: redis.Redis
    artifacts: ArtifactStore
    close_after_s: float = CLOSE_AFTER_S
    wait_s: float = WAIT_S
    _streams: dict[str, _Stream] = field(default_factory=dict)

    def run(self, stop: threading.Event) -> None:
        """Record until `stop` is set, across restarts of Redis and the database."""
        while not stop.is_set():
            try:
                n_streams = self.record_once()
            except redis.RedisError as error:
                logger.warning("recorder.redis_lost", error=str(error))
                self._streams.clear()  # what was in flight is read again
                stop.wait(RETRY_S)
                continue
            if not n_streams:
                stop.wait(self.wait_s)

    def record_once(self) -> int:
        """One pass over all active streams; returns how many there are."""
        active: dict[bytes, bytes] = self.redis.hgetall(names.ACTIVE_STREAMS)  # type: ignore[assignment]
        orgs = {job_id.decode(): org_id.decode() for job_id, org_id in active.items()}
        for gone in self._streams.keys() - orgs.keys():
            del self._streams[gone]
        for job_id, org_id in orgs.items():
            self._record_job(job_id, org_id, block_s=max(0.005, self.wait_s / len(orgs)))
        return len(orgs)

    def _record_job(self, job_id: str, org_id: str, block_s: float) -> None:
        """Record what one stream has; a fault of this stream or the database holds up no other."""
        stream = self._streams.get(job_id)
        if stream is None:
            reader = StreamReader(self.redis, self.artifacts, job_id, RECORDER_GROUP)
            stream = self._streams[job_id] = _Stream(reader)
        if time.monotonic() < stream.retry_at:
            return
        try:
            entries = self._next_entries(stream, block_s)
            if entries:
                self._write(job_id, stream, entries)
            else:
                self._close_if_finished(job_id, stream)
        except (Unavailable, OSError, SQLAlchemyError, ValidationError, zstandard.ZstdError) as error:
            logger.error("recorder.stream_failed", job_id=job_id, error=f"{type(error).__name__}: {error}")
            stream.has_unacknowledged, stream.retry_at = True, time.monotonic() + RETRY_S
        except redis.ResponseError as error:
            if "NOGROUP" not in str(error):
                raise
            # Redis came back without what it held last: an empty stream is right, the trainer orders again.
            open_stream(self.redis, org_id, job_id)

    def _next_entries(self, stream: _Stream, block_s: float) -> list[Entry]:
        if stream.has_unacknowledged:
            entries = stream.reader.read_unacknowledged()
            stream.has_unacknowledged = False
            if entries:
                return entries
        return stream.reader.read_new(count=BATCH, block_s=block_s)

    def _write(self, job_id: str, stream: _Stream, entries: list[Entry]) -> None:
        recorded = [self._with_trace(entry) for entry in entries]
        with self.store.write() as session:
            record(session, recorded, self._is_kept(job_id))
        stream.reader.acknowledge([entry.entry_id for entry in entries])
        trim_acknowledged(self.redis, job_id)

    def _with_trace(self, entry: Entry) -> Recorded:
        """Make the trace durable; the same attempt always gives the same bytes at the same path."""
        trajectory = entry.trajectory
        path = trace_path(trajectory)
        body = zstandard.compress(trajectory.model_dump_json().encode())
        return Recorded(trajectory, str(entry.verdict), path, self.artifacts.write(path, body))

    def _is_kept(self, job_id: str):
        """Whether the trainer of a later timeline has taken an earlier attempt over."""

        def is_kept(rollout_id: str, session_id: str) -> bool:
            accepted: bytes | None = self.redis.hget(names.seen(job_id), rollout_id)  # type: ignore[assignment]
            return accepted is not None and accepted.decode() == session_id

        return is_kept

    def _close_if_finished(self, job_id: str, stream: _Stream) -> None:
        # Everything delivered is acknowledged by now, unless a dropped connection took the answer along.
        if stream.reader.n_unacknowledged():
            stream.has_unacknowledged = True
            return
        with self.store.read() as session:
            job = session.get(Job, job_id)
        if job is None:
            is_over = True
        else:
            since = job.finished_at or job.updated_at
            is_over = JobStatus(job.status).is_terminal and now() - since >= timedelta(
                seconds=self.close_after_s
            )
        if is_over:
            close_stream(self.redis, job_id)
            self._streams.pop(job_id, None)
            logger.info("recorder.stream_closed", job_id=job_id)


def trace_path(trajectory: Trajectory) -> str:
    """Where an attempt's trace lies among the artifacts."""
    return f"{trajectory.org_id}/{trajectory.job_id}/traces/{trajectory.session_id}.json.zst"


def main() -> None:
    log.configure("recorder")
    settings = Settings()
    settings.home.mkdir(parents=True, exist_ok=True)
    upgrade(settings.sql_url)
    store, client = Store(settings.sql_url), connect(settings.redis_url, retries=2)
    stop = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stop.set())
    with beating(client, "recorder"):
        Recorder(store, client, ArtifactStore(settings.artifacts)).run(stop)
    store.close()


if __name__ == "__main__":
    main()
