"""The trajectory stream of a job: first accepted attempt per rollout and timeline, never twice.

A body above `INLINE_LIMIT` lies among the artifacts and the entry holds its reference. An entry is
trimmed when trainer and recorder have both acknowledged it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import redis
import zstandard

from headrace.artifacts.files import ArtifactStore
from headrace.contracts.trajectory import Trajectory, TrajectoryRef
from headrace.errors import StaleTimeline
from headrace.queue import names
from headrace.queue.scripts import source

INLINE_LIMIT = 64 * 1024
"""Bytes of a compressed trajectory that still travels inside its stream entry."""
TRAINER_GROUP, RECORDER_GROUP = "trainer", "recorder"
GROUPS = (TRAINER_GROUP, RECORDER_GROUP)


class Verdict(StrEnum):
    """What became of a pushed attempt; all but `REPEATED` and `CLOSED` are new on the stream."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    """Another attempt of the rollout was accepted before; kept as a record."""
    REPEATED = "repeated"
    """This very session is on the stream (a push retried after a lost answer); nothing was added."""
    STALE = "stale"
    """Of an older timeline; kept as a record."""
    RECORD = "record"
    """Failed or cancelled; kept as a record."""
    CLOSED = "closed"
    """The job has no stream (any more); nothing was added."""


@dataclass(frozen=True)
class Entry:
    """One stream entry as a consumer sees it."""

    entry_id: str
    verdict: Verdict
    trajectory: Trajectory


def push(client: redis.Redis, artifacts: ArtifactStore, trajectory: Trajectory) -> Verdict:
    """Put an attempt on its job's stream in one atomic call."""
    body = zstandard.compress(trajectory.model_dump_json().encode())
    job_id = trajectory.job_id
    if len(body) <= INLINE_LIMIT:
        content: list[str | bytes] = ["body", body]
    else:
        path = f"{trajectory.org_id}/{job_id}/trajectories/{trajectory.session_id}.json.zst"
        ref = TrajectoryRef(path=path, sha256=artifacts.write(path, body), n_bytes=len(body))
        content = ["ref", ref.model_dump_json()]
    verdict = client.eval(
        source("push_trajectory"), 4,
        names.timeline(job_id), names.seen(job_id), names.trajectories(job_id), names.recorded(job_id),
        str(trajectory.timeline), trajectory.rollout_id, trajectory.session_id,
        "1" if trajectory.outcome.has_reward else "0",
        *content,
    )  # fmt: skip
    return Verdict(verdict.decode())  # type: ignore[union-attr]


def take_over(client: redis.Redis, job_id: str, timeline: int) -> None:
    """Fence off older timelines in one atomic call; raises StaleTimeline when a newer one has come."""
    taken = client.eval(
        source("take_over"), 4,
        names.timeline(job_id), names.seen(job_id), names.orders_out(job_id), names.cancelled(job_id),
        str(timeline),
    )  # fmt: skip
    if not taken:
        raise StaleTimeline(f"job {job_id} has a newer timeline than {timeline}")


def open_stream(client: redis.Redis, org_id: str, job_id: str) -> None:
    """Create the stream with both consumer groups, and tell the recorder; repeating it is harmless."""
    for group in GROUPS:
        try:
            client.xgroup_create(names.trajectories(job_id), group, id="0", mkstream=True)
        except redis.ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise
    client.hset(names.ACTIVE_STREAMS, job_id, org_id)


class StreamReader:
    """Reads one job's stream as a consumer group; the group has one consumer at a time."""

    def __init__(self, client: redis.Redis, artifacts: ArtifactStore, job_id: str, group: str) -> None:
        self._client, self._artifacts = client, artifacts
        self._key, self._group = names.trajectories(job_id), group

    def read_unacknowledged(self) -> list[Entry]:
        """Entries delivered earlier (before a crash) and never acknowledged, oldest first."""
        entries: list[Entry] = []
        after = "0"
        while page := self._read(after, count=200, block_ms=None):
            entries += [entry for _, entry in page if entry is not None]
            after = page[-1][0]
        return entries

    def read_new(self, count: int = 200, block_s: float = 1.0) -> list[Entry]:
        """Entries not yet delivered to this group; waits up to `block_s` for the first."""
        page = self._read(">", count=count, block_ms=int(block_s * 1000))
        return [entry for _, entry in page if entry is not None]

    def acknowledge(self, entry_ids: list[str]) -> None:
        for start in range(0, len(entry_ids), 500):
            self._client.xack(self._key, self._group, *entry_ids[start : start + 500])

    def n_unacknowledged(self) -> int:
        """Entries behind: delivered and pending, plus not yet delivered."""
        for info in self._client.xinfo_groups(self._key):  # type: ignore[union-attr, misc]
            if info["name"].decode() == self._group:
                return int(info["pending"]) + int(info["lag"] or 0)
        return 0

    def _read(self, after: str, count: int, block_ms: int | None) -> list[tuple[str, Entry | None]]:
        # One fixed consumer name: a successor finds its predecessor's pending entries under it.
        reply: Any = self._client.xreadgroup(
            self._group, "reader", {self._key: after}, count=count, block=block_ms
        )
        if not reply:
            return []
        [(_, rows)] = reply
        page = []
        for raw_id, fields in rows:
            # A trimmed entry that is still pending comes back without fields.
            page.append((raw_id.decode(), self._decode(raw_id.decode(), fields) if fields else None))
        return page

    def _decode(self, entry_id: str, fields: dict[bytes, bytes]) -> Entry:
        if b"body" in fields:
            body = fields[b"body"]
        else:
            ref = TrajectoryRef.model_validate_json(fields[b"ref"])
            body = self._artifacts.read(ref.path, ref.sha256)
        trajectory = Trajectory.model_validate_json(zstandard.decompress(body))
        return Entry(entry_id, Verdict(fields[b"verdict"].decode()), trajectory)


def trim_acknowledged(client: redis.Redis, job_id: str) -> int:
    """Delete entries that both groups have acknowledged; returns how many."""
    key = names.trajectories(job_id)
    oldest_needed: list[tuple[int, int]] = []
    for info in client.xinfo_groups(key):  # type: ignore[union-attr]
        pending = client.xpending(key, info["name"])
        first_pending = pending["min"] if pending["pending"] else None  # type: ignore[index]
        needed = first_pending or _after(info["last-delivered-id"])
        oldest_needed.append(_split(needed))
    if not oldest_needed:
        return 0
    milliseconds, sequence = min(oldest_needed)
    return int(client.xtrim(key, minid=f"{milliseconds}-{sequence}", approximate=False))  # type: ignore[arg-type]


def _split(entry_id: bytes) -> tuple[int, int]:
    milliseconds, sequence = entry_id.decode().split("-")
    return int(milliseconds), int(sequence)


def _after(entry_id: bytes) -> bytes:
    milliseconds, sequence = _split(entry_id)
    return f"{milliseconds}-{sequence + 1}".encode()


def close_stream(client: redis.Redis, job_id: str) -> None:
    """Forget everything of a finished job once the recorder has read it all."""
    client.hdel(names.ACTIVE_STREAMS, job_id)
    client.delete(
        names.timeline(job_id),
        names.trajectories(job_id),
        names.seen(job_id),
        names.recorded(job_id),
        names.orders_out(job_id),
        names.environment_keys(job_id),
    )
