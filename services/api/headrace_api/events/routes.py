"""`GET .../{job_id}/events`: a page with a cursor, or a server-sent stream when the client accepts one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Annotated, Any, Self

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from headrace.contracts.job import JobStatus
from headrace.store.jobs import get_job
from headrace.store.progress import events_after
from headrace.store.tables import JobEvent
from headrace_api.deps import Backends, BackendsDep, Caller, CallerDep

router = APIRouter(tags=["events"])

POLL_S = 0.5
KEEP_ALIVE_POLLS = 20
"""Quiet polls after which a comment keeps proxies from closing the stream."""
PAGE = 200


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
    accept: Annotated[str, Header()] = "",
    last_event_id: Annotated[int | None, Header(ge=0)] = None,
) -> EventPage | StreamingResponse:
    """Events with a greater seq; `Accept: text/event-stream` follows them until the job has ended."""
    events, _ = _read(backends, caller, job_id, since_seq, limit)  # an unknown job is a 404 in both forms
    if "text/event-stream" not in accept:
        return EventPage(events=events)
    after = since_seq if last_event_id is None else last_event_id
    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    stream = _follow(backends, caller, job_id, after)
    return StreamingResponse(stream, media_type="text/event-stream", headers=headers)


def _read(
    backends: Backends, caller: Caller, job_id: str, since_seq: int, limit: int
) -> tuple[list[EventView], bool]:
    """A page of events, and whether the job had ended before it was read."""
    with backends.store.read() as session:
        has_ended = JobStatus(get_job(session, caller.org_id, job_id).status).is_terminal
        return [EventView.of(row) for row in events_after(session, job_id, since_seq, limit)], has_ended


async def _follow(backends: Backends, caller: Caller, job_id: str, after: int) -> AsyncIterator[str]:
    """Server-sent lines; a waiting client holds no thread."""
    n_quiet = 0
    while True:
        events, has_ended = await run_in_threadpool(_read, backends, caller, job_id, after, PAGE)
        for event in events:
            yield f"id: {event.seq}\ndata: {event.model_dump_json()}\n\n"
            after = event.seq
        if has_ended and not events:
            return
        n_quiet = 0 if events else n_quiet + 1
        if n_quiet and n_quiet % KEEP_ALIVE_POLLS == 0:
            yield ": keep-alive\n\n"
        if len(events) < PAGE and not has_ended:
            await asyncio.sleep(POLL_S)
