"""One job: its page, its series and its live stream."""

from __future__ import annotations

import secrets
from typing import Any

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from headrace_dashboard.access import key_of
from headrace_dashboard.api import client_of
from headrace_dashboard.chart_sections import SECTIONS, TILES, charts_of
from headrace_dashboard.charts import resolved
from headrace_dashboard.feed import Feed
from headrace_dashboard.live import Cursor, Watch, loaded, stream
from headrace_dashboard.render import page
from headrace_dashboard.views.job import checkpoint_views, engine_view, job_view, report

router = APIRouter()

N_BUCKETS = 600
"""Pixel columns that a chart can show apart on a wide screen."""
_EVENTS_SHOWN = 100


@router.get("/jobs/{job_id}")
async def job(request: Request, job_id: str) -> Response:
    api = client_of(request)
    feed = await loaded(_watch(request, job_id))
    kind = feed.job.get("type") or "rl"
    checkpoints, config, runs = await run_in_threadpool(
        lambda: (api.checkpoints(job_id), api.job_config(job_id), api.runs(job_id))
    )
    tiles = [
        (tile, feed.series.last(tile.name), feed.series.first(tile.name)) for tile in TILES.get(kind, ())
    ]
    events = list(feed.events)
    return page(
        request,
        "job.html",
        job=job_view(feed.job),
        raw=feed.job,
        tiles=tiles,
        sections=resolved(SECTIONS.get(kind, ()), feed.series),
        names=feed.series.names(),
        events=events[::-1][:_EVENTS_SHOWN],
        engine=engine_view(events),
        checkpoints=checkpoint_views(checkpoints),
        config=config,
        runs=runs,
        clone_key=secrets.token_hex(16),
        report=report("Result", feed.job.get("result") or {}),
        cursor=str(_cursor(feed)),
    )


@router.get("/jobs/{job_id}/series")
async def series(
    request: Request,
    job_id: str,
    chart: str | None = None,
    first: int | None = None,
    last: int | None = None,
) -> Response:
    """Points of all charts, or of one between two steps (a zoom), thinned to what a screen can show."""
    feed = await loaded(_watch(request, job_id))
    charts = charts_of(feed.job.get("type") or "rl")
    wanted = [chart] if chart in charts else list(charts)
    return JSONResponse(await run_in_threadpool(_tables, feed, wanted, first, last))


@router.get("/jobs/{job_id}/live")
async def live(request: Request, job_id: str, cursor: str = "") -> Response:
    """Server-sent events with what is new since the cursor, or since the Last-Event-ID of a reconnect."""
    position = Cursor.parse(request.headers.get("last-event-id") or cursor)
    return StreamingResponse(
        stream(_watch(request, job_id), position),
        media_type="text/event-stream",
        headers={"X-Accel-Buffering": "no"},
    )


def _watch(request: Request, job_id: str) -> Watch:
    return request.app.state.hub.watch(key_of(request), job_id)


def _cursor(feed: Feed) -> Cursor:
    return Cursor(feed.series.last_step, feed.last_seq)


def _tables(feed: Feed, wanted: list[str], first: int | None, last: int | None) -> dict[str, Any]:
    charts = charts_of(feed.job.get("type") or "rl")
    cursor = _cursor(feed)
    tables = {}
    for key in wanted:
        shown = charts[key].of(feed.series)
        steps, columns = feed.series.table(shown.names, N_BUCKETS, first, last)
        tables[key] = {"lines": shown.for_browser()["lines"], "table": [steps, *columns]}
    return {"cursor": str(cursor), "charts": tables}
