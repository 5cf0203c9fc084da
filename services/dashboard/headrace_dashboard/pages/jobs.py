"""The list of jobs."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from headrace_dashboard.api import client_of
from headrace_dashboard.render import page
from headrace_dashboard.sparks import METRIC
from headrace_dashboard.views.job import TYPE_NAMES, job_view, summary

router = APIRouter()

_LIMIT = 200
STATUSES = ("queued", "running", "succeeded", "failed", "cancelled")


@router.get("/")
def front() -> Response:
    return RedirectResponse("/jobs", status_code=303)


@router.get("/jobs")
def jobs(
    request: Request, type: str = "", status: str = "", pool: str = "", model: str = "", tag: str = ""
) -> Response:
    """Newest first; each filter is a query key, a tag is `name:value`."""
    api = client_of(request)
    name, _, value = tag.partition(":")
    rows: list[dict[str, Any]] = api.list_jobs(
        type=type or None,
        status=status or None,
        pool=pool or None,
        model=model or None,
        tags={name.strip(): value.strip()} if value else None,
        limit=_LIMIT,
    )
    filters = {"type": type, "status": status, "pool": pool, "model": model, "tag": tag}
    return page(
        request,
        "jobs.html",
        jobs=[job_view(row) for row in rows],
        sparks=request.app.state.sparks.of(api, rows),
        metrics=METRIC,
        filters=filters,
        summary=summary(rows),
        is_filtered=any(filters.values()),
        type_names=TYPE_NAMES,
        statuses=STATUSES,
        limit=_LIMIT,
    )
