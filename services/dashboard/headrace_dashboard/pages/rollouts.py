"""The rollouts of a job, and one of them."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from headrace_dashboard.api import client_of
from headrace_dashboard.render import page
from headrace_dashboard.views.job import job_view
from headrace_dashboard.views.paging import paging
from headrace_dashboard.views.trace import turns

router = APIRouter()

PAGE = 50
STATUSES = ("planned", "scored", "policy_failed", "infra_failed", "cancelled")


@router.get("/jobs/{job_id}/rollouts")
def rollouts(
    request: Request,
    job_id: str,
    purpose: str = "",
    iteration: str = "",
    status: str = "",
    offset: int = 0,
) -> Response:
    api = client_of(request)
    job = api.get_job(job_id)
    wanted = int(iteration) if iteration.strip().isdecimal() else None
    found = api.rollouts(
        job_id,
        purpose=purpose or None,
        iteration=wanted,
        status=status or None,
        limit=PAGE,
        offset=max(0, offset),
    )
    filters = {"purpose": purpose, "iteration": "" if wanted is None else str(wanted), "status": status}
    return page(
        request,
        "rollouts.html",
        job=job_view(job),
        rollouts=found["rollouts"],
        total=found["total"],
        paging=paging(f"/jobs/{job_id}/rollouts", filters, max(0, offset), PAGE, found["total"]),
        filters=filters,
        is_filtered=any(filters.values()),
        statuses=STATUSES,
    )


@router.get("/rollouts/{rollout_id}")
def rollout(request: Request, rollout_id: str) -> Response:
    found = client_of(request).rollout(rollout_id)
    row, trajectory = found["rollout"], found.get("trajectory")
    event_rewards = _of_attempt(found["event_rewards"], row.get("session_id"))
    conversation = turns(trajectory, event_rewards)
    return page(
        request,
        "rollout.html",
        rollout=row,
        trajectory=trajectory,
        turns=conversation,
        ops=(trajectory or {}).get("ops") or [],
        attempts=found["attempts"],
        event_rewards=event_rewards,
        tools=next(
            (call["tools"] for call in (trajectory or {}).get("calls") or [] if call.get("tools")), None
        ),
        versions=list(dict.fromkeys(version for turn in conversation for version in turn.versions)),
    )


def _of_attempt(rows: list[dict[str, Any]], session_id: str | None) -> list[dict[str, Any]]:
    """Event rewards of the accepted attempt; of all where none was accepted or rows name no attempt."""
    return [row for row in rows if session_id is None or row.get("session_id", session_id) == session_id]
