"""The list of jobs."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from headrace.contracts.job import JobStatus
from headrace_dashboard.api import client_of
from headrace_dashboard.render import page
from headrace_dashboard.sparks import METRIC
from headrace_dashboard.views.job import TYPE_NAMES, job_view, summary
from headrace_dashboard.views.job_filters import JobFilters

router = APIRouter()

PAGE = 50


@router.get("/")
def front() -> Response:
    return RedirectResponse("/jobs", status_code=303)


@router.get("/jobs")
def jobs(request: Request) -> Response:
    """Newest first, in pages; each filter is a query key, `tag` and `data` are `name:value`."""
    api, filters = client_of(request), JobFilters.parse(request.query_params)
    found = api.jobs_page(**filters.for_api(), limit=PAGE)
    rows = found["jobs"]
    has_more = found.get("has_more", False) and bool(rows)
    return page(
        request,
        "jobs.html",
        jobs=[job_view(row) for row in rows],
        sparks=request.app.state.sparks.of(api, rows),
        metrics=METRIC,
        filters=filters,
        summary=summary(rows),
        type_names=TYPE_NAMES,
        statuses=tuple(JobStatus),
        first_page=filters.link() if filters.after else None,
        next_page=filters.link(rows[-1]["job_id"]) if has_more else None,
    )
