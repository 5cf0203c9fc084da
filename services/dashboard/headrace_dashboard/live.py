"""Live updates: one poller per watched job, however many look at it, and a server-sent stream for each.

A stream holds no queue: it remembers how far its viewer is (step, event seq) and sends what the feed
has beyond that, so a slow viewer costs nothing and a reconnecting one (Last-Event-ID) misses nothing.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from headrace import log
from headrace.errors import HeadraceError, NotFound, Unauthorized, Unavailable
from headrace_dashboard.api import Clients
from headrace_dashboard.chart_sections import TILES
from headrace_dashboard.feed import Feed
from headrace_dashboard.views.job import TERMINAL, live_job

POLL_S = 1.0
POLL_ENDED_S = 5.0
POLL_DOWN_S = 2.0
KEEP_IDLE_S = 30.0
PING_S = 15.0
MAX_CATCH_UP = 20_000
"""Points; beyond this a viewer is told to load the (thinned) series again."""

logger = log.get(__name__)


@dataclass
class Watch:
    """A feed, the task that polls it, and how many look at it."""

    feed: Feed
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    wanted: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by who cannot wait for the next poll."""
    task: asyncio.Task[None] | None = None
    trouble: HeadraceError | None = None
    """Why the last poll got nothing; None while the API answers."""
    n_polls: int = 0
    n_viewers: int = 0
    idle_since: float = field(default_factory=time.monotonic)

    @property
    def is_over(self) -> bool:
        return isinstance(self.trouble, NotFound | Unauthorized)


class Hub:
    """Every watched job by (key, job): visitors with different keys never share a feed."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._watches: dict[tuple[str, str], Watch] = {}

    def watch(self, key: str, job_id: str) -> Watch:
        """The watch of a job, started if need be; call from the event loop."""
        watch = self._watches.get((key, job_id))
        if watch is None or watch.task is None or watch.task.done():
            watch = Watch(Feed(self._clients.of(key), job_id))
            self._watches[key, job_id] = watch
            watch.task = asyncio.create_task(self._run((key, job_id), watch), name=f"watch {job_id}")
        watch.idle_since = time.monotonic()
        return watch

    async def close(self) -> None:
        tasks = [watch.task for watch in self._watches.values() if watch.task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._watches.clear()

    async def _run(self, key: tuple[str, str], watch: Watch) -> None:
        try:
            while not watch.is_over and not self._is_forgotten(watch):
                await self._poll(watch)
                await _rest(watch)
        finally:
            if self._watches.get(key) is watch:
                del self._watches[key]

    @staticmethod
    def _is_forgotten(watch: Watch) -> bool:
        return watch.n_viewers == 0 and time.monotonic() - watch.idle_since > KEEP_IDLE_S

    @staticmethod
    async def _poll(watch: Watch) -> None:
        trouble: HeadraceError | None = None
        try:
            await asyncio.to_thread(watch.feed.poll)
        except HeadraceError as error:
            trouble = error
            logger.warning("live.poll_failed", job_id=watch.feed.job_id, reason=error.message)
        async with watch.changed:
            watch.trouble = trouble
            watch.n_polls += 1
            watch.changed.notify_all()


async def _rest(watch: Watch) -> None:
    """Wait for the time of the next poll, or until somebody wants one."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_pause(watch)):
            await watch.wanted.wait()
    watch.wanted.clear()


def _pause(watch: Watch) -> float:
    if watch.trouble:
        return POLL_DOWN_S
    if not watch.feed.is_complete:
        return 0.0
    return POLL_ENDED_S if watch.feed.job["status"] in TERMINAL else POLL_S


async def loaded(watch: Watch, timeout_s: float = 30.0) -> Feed:
    """The feed as of now, once all of its points are read.

    Raises the API's error, or Unavailable when it takes too long.
    """
    seen = watch.n_polls
    watch.wanted.set()

    def is_settled() -> bool:
        return watch.n_polls > seen and (watch.feed.is_complete or watch.trouble is not None)

    try:
        async with asyncio.timeout(timeout_s), watch.changed:
            await watch.changed.wait_for(is_settled)
    except TimeoutError as error:
        raise Unavailable(f"the metrics of {watch.feed.job_id} take longer than {timeout_s:g} s") from error
    if watch.trouble:
        raise watch.trouble
    return watch.feed


@dataclass
class Cursor:
    """How far a viewer is; `str()` of it is the id of a server-sent event."""

    step: int = -1
    seq: int = 0

    def __str__(self) -> str:
        return f"{self.step}:{self.seq}"

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """Anything unreadable starts from the beginning.

        >>> Cursor.parse("12:40"), Cursor.parse("nonsense")
        (Cursor(step=12, seq=40), Cursor(step=-1, seq=0))
        """
        step, _, seq = text.partition(":")
        try:
            return cls(int(step), int(seq))
        except ValueError:
            return cls()


async def stream(watch: Watch, cursor: Cursor) -> AsyncIterator[str]:
    """Server-sent events `update`, `trouble`, `reload` and comments that keep the connection open."""
    watch.n_viewers += 1
    try:
        yield "retry: 1000\n\n"
        seen_revision, was_trouble, n_polls = -1, False, -1
        while True:
            n_polls = await _next_poll(watch, n_polls)
            if watch.trouble:
                yield _message("trouble", {"message": watch.trouble.message}, cursor)
                was_trouble = True
                if watch.is_over:
                    return
            elif n_polls == -1:
                if watch.task is None or watch.task.done():
                    return
                yield ": still here\n\n"
            elif watch.feed.is_complete and (was_trouble or watch.feed.revision != seen_revision):
                seen_revision, was_trouble = watch.feed.revision, False
                yield _update(watch.feed, cursor)
    finally:
        watch.n_viewers -= 1
        watch.idle_since = time.monotonic()


async def _next_poll(watch: Watch, seen: int) -> int:
    """Number of the next poll after `seen`, or -1 when none came for a while."""
    try:
        async with asyncio.timeout(PING_S), watch.changed:
            await watch.changed.wait_for(lambda: watch.n_polls > max(seen, 0))
    except TimeoutError:
        return -1
    return watch.n_polls


def _update(feed: Feed, cursor: Cursor) -> str:
    """What is beyond the cursor, which moves on. The cursor's own step is sent again: it may have grown."""
    points = feed.series.since(cursor.step)
    events = feed.events_since(cursor.seq)
    cursor.step = max(cursor.step, feed.series.last_step)
    cursor.seq = max(cursor.seq, feed.last_seq)
    if len(points) > MAX_CATCH_UP:
        return _message("reload", {}, cursor)
    shown = (tile.name for tile in TILES.get(feed.job.get("type") or "rl", ()))
    tiles = {name: value for name in shown if (value := feed.series.last(name)) is not None}
    body = {"job": live_job(feed.job), "points": points, "events": events, "last": tiles}
    return _message("update", body, cursor)


def _message(kind: str, body: dict[str, Any], cursor: Cursor) -> str:
    return f"id: {cursor}\nevent: {kind}\ndata: {json.dumps(_finite(body))}\n\n"


def _finite(value: Any) -> Any:
    """The same with None for numbers that JSON does not have."""
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
