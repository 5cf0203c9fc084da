"""`GET .../{job_id}/events`: a page with a cursor, or a server-sent stream when the client accepts one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from typing import Annotated, Any, Self

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from headrace.contracts.job import JobStatus
from headrace.store import heartbeats
from headrace.store.jobs import get_job
from headrace.store.progress import events_after, metric_points
from headrace.store.tables import JobEvent
from headrace_api.deps import Backends, BackendsDep, Caller, CallerDep
from headrace_api.jsonl import Format, jsonl_response
from headrace_api.metrics.routes import AfterStep, MetricPoint

router = APIRouter(tags=["events"])

POLL_S = 0.5
KEEP_ALIVE_POLLS = 20
"""Quiet polls after which a comment keeps proxies from closing the stream."""
PAGE = 200
EXPORT_PAGE = 2000
METRICS_PAGE = 2000


class EventView(BaseModel):
    seq: int
    type: str
    message: str
    level: str
    data: dict[str, Any]
    created_at: datetime
    job_id: str

    @classmethod
    def of(cls, row: JobEvent) -> Self:
        return cls(**row.model_dump(exclude={"org_id"}))


class EventPage(BaseModel):
    events: list[EventView]


@router.get("/{job_id}/events", response_model=EventPage)
def get_events(
    job_id: str,
    backends: BackendsDep,
    caller: CallerDep,
    since_seq: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=5000)] = PAGE,
    format: Format = "json",
    metrics: bool = False,
    after_step: AfterStep = -1,
    accept: Annotated[str, Header()] = "",
    last_event_id: Annotated[int | None, Header(ge=0)] = None,
) -> EventPage | StreamingResponse:
    """Events with a greater seq; `Accept: text/event-stream` follows them until the job has ended.

    The stream goes on behind `Last-Event-ID`, and carries the metrics behind `after_step`, too, as
    messages of the event `metric`, with `metrics=1`. `format=jsonl` streams all events that there are.
    """
    _keep_alive(backends, caller, job_id)  # an unknown job is a 404 in every form
    if format == "jsonl":
        return jsonl_response(_all(backends, caller, job_id, since_seq), f"{job_id}.events.jsonl")
    if "text/event-stream" not in accept:
        return EventPage(events=_read(backends, caller, job_id, since_seq, limit)[0])
    after = since_seq if last_event_id is None else last_event_id
    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    stream = _follow(backends, caller, job_id, after, after_step if metrics else None)
    return StreamingResponse(stream, media_type="text/event-stream", headers=headers)


def _read(
    backends: Backends, caller: Caller, job_id: str, since_seq: int, limit: int
) -> tuple[list[EventView], bool]:
    """A page of events, and whether the job had ended before it was read."""
    with backends.store.read() as session:
        has_ended = JobStatus(get_job(session, caller.org_id, job_id).status).is_terminal
        return [EventView.of(row) for row in events_after(session, job_id, since_seq, limit)], has_ended


def _all(backends: Backends, caller: Caller, job_id: str, since_seq: int) -> Iterator[EventView]:
    while page := _read(backends, caller, job_id, since_seq, EXPORT_PAGE)[0]:
        yield from page
        since_seq = page[-1].seq


def _keep_alive(backends: Backends, caller: Caller, job_id: str) -> None:
    """Let a quiet job say that it is there, whoever should have: no trainer holds a queued one."""
    with backends.store.read() as session:
        is_quiet = heartbeats.is_quiet(session, get_job(session, caller.org_id, job_id))
    if is_quiet:
        with backends.store.write() as session:
            heartbeats.beat(session, job_id)


def _look(
    backends: Backends, caller: Caller, job_id: str, after: int, after_step: int | None
) -> tuple[list[EventView], list[MetricPoint], bool]:
    """What is new to a follower, and whether the job had ended before that was read."""
    _keep_alive(backends, caller, job_id)
    events, has_ended = _read(backends, caller, job_id, after, PAGE)
    if after_step is None:
        return events, [], has_ended
    with backends.store.read() as session:
        points = metric_points(session, job_id, after_step, None, METRICS_PAGE)
    return events, [MetricPoint.model_validate(point, from_attributes=True) for point in points], has_ended


async def _follow(
    backends: Backends, caller: Caller, job_id: str, after: int, after_step: int | None
) -> AsyncIterator[str]:
    """Server-sent lines; a waiting client holds no thread."""
    n_quiet = 0
    while True:
        events, points, has_ended = await run_in_threadpool(
            _look, backends, caller, job_id, after, after_step
        )
        for event in events:
            yield f"id: {event.seq}\ndata: {event.model_dump_json()}\n\n"
            after = event.seq
        for point in points:  # without an id, so that the last one stays that of an event
            yield f"event: metric\ndata: {point.model_dump_json()}\n\n"
            after_step = point.step
        is_quiet = not events and not points
        if has_ended and is_quiet:
            return
        n_quiet = n_quiet + 1 if is_quiet else 0
        if n_quiet and n_quiet % KEEP_ALIVE_POLLS == 0:
            yield ": keep-alive\n\n"
        if len(events) < PAGE and not has_ended:
            await asyncio.sleep(POLL_S)
