"""A job's rewards by iteration, with how often each event happened."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from headrace.errors import BadRequest
from headrace_dashboard.api import client_of
from headrace_dashboard.render import page
from headrace_dashboard.views.job import job_view
from headrace_dashboard.views.rewards import PURPOSES, next_link, reward_rows

router = APIRouter()

PAGE = 100


@router.get("/jobs/{job_id}/rewards")
def rewards(request: Request, job_id: str, purpose: str = "", after_step: int = -1) -> Response:
    """Whole iterations behind `after_step`, oldest first."""
    if purpose and purpose not in PURPOSES:
        raise BadRequest(f"purpose = {purpose!r} is none of {', '.join(PURPOSES)}")
    api = client_of(request)
    job = job_view(api.get_job(job_id))
    found = api.rewards_page(job_id, purpose=purpose or None, after_step=after_step, limit=PAGE)
    return page(
        request,
        "rewards.html",
        job=job,
        rows=reward_rows(found["rewards"]),
        purpose=found["purpose"],
        purposes=PURPOSES,
        is_first=after_step < 0,
        next_page=next_link(job_id, found),
    )
