"""Who does the work: what each pool is doing, and Flower for the workers themselves."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from headrace.errors import Unavailable
from headrace_dashboard.api import client_of
from headrace_dashboard.render import page
from headrace_dashboard.views.job import job_view

router = APIRouter()

_LIMIT = 200


@router.get("/workers")
def workers(request: Request) -> Response:
    api = client_of(request)
    active = [
        job_view(row)
        for status in ("running", "queued")
        for row in api.list_jobs(status=status, limit=_LIMIT)
    ]
    trouble = None
    try:
        api.ready()
    except Unavailable as error:
        trouble = error.message
    pools = {
        pool: [job for job in active if job.pool == pool] for pool in sorted({job.pool for job in active})
    }
    return page(request, "workers.html", pools=pools, trouble=trouble)
