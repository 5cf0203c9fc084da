"""What a visitor can do to a job. Posts only: the guard refuses those of other sites."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from headrace_dashboard.api import client_of
from headrace_dashboard.forms import form_fields

router = APIRouter()


@router.post("/jobs/{job_id}/cancel")
def cancel(request: Request, job_id: str) -> Response:
    client_of(request).cancel_job(job_id)
    return _to(job_id)


@router.post("/jobs/{job_id}/resume")
def resume(request: Request, job_id: str) -> Response:
    """Queue a failed or cancelled job again."""
    client_of(request).resume_job(job_id)
    return _to(job_id)


@router.post("/jobs/{job_id}/clone")
async def clone(request: Request, job_id: str) -> Response:
    """A new job with the same config. The form's key makes a second click give the same one."""
    key = (await form_fields(request)).get("key") or None
    api = client_of(request)
    made = await run_in_threadpool(api.clone_job, job_id, idempotency_key=key)
    return _to(made["job_id"])


def _to(job_id: str) -> Response:
    return RedirectResponse(f"/jobs/{job_id}", status_code=303)
