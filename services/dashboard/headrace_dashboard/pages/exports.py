"""A job's data as JSONL, line by line from the API: what a browser downloads without a key of its own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from headrace.client import ApiClient
from headrace.errors import NotFound
from headrace_dashboard.api import client_of

router = APIRouter()

EXPORTS = ("metrics", "rewards", "events", "rollouts")


@router.get("/jobs/{job_id}/{what}.jsonl")
def export(request: Request, job_id: str, what: str) -> Response:
    """All of a job's metrics, rewards, events or rollouts; a break in the middle ends it unfinished."""
    if what not in EXPORTS:
        raise NotFound(f"there is no export {what!r} of a job; there are {', '.join(EXPORTS)}")
    api = client_of(request)
    name = api.get_job(job_id)["job_id"]
    headers = {"Content-Disposition": f'attachment; filename="{name}.{what}.jsonl"'}
    return StreamingResponse(
        _lines(_rows(api, job_id, what)), media_type="application/x-ndjson", headers=headers
    )


def _rows(api: ApiClient, job_id: str, what: str) -> Iterable[dict[str, Any]]:
    if what == "metrics":
        return api.export_metrics(job_id)
    if what == "events":
        return api.export_events(job_id)
    if what == "rollouts":
        return api.export_rollouts(job_id)
    return api.export_rewards(job_id)


def _lines(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    for row in rows:
        yield json.dumps(row, ensure_ascii=False) + "\n"
