"""Rollouts of a job, and one rollout with its attempts, rewards and trajectory."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel

from headrace.store import rollouts as stored
from headrace.store.jobs import get_job
from headrace.store.tables import Attempt, EventRewardRow, Rollout
from headrace_api.deps import BackendsDep, CallerDep
from headrace_api.traces import service

router = APIRouter(tags=["rollouts"])
reads = APIRouter(tags=["rollouts"])


class RolloutPage(BaseModel):
    rollouts: list[Rollout]
    total: int


class RolloutView(BaseModel):
    rollout: Rollout
    attempts: list[Attempt]
    event_rewards: list[EventRewardRow]
    trajectory: dict[str, Any] | None
    """The stored trajectory with full messages per call; None before it is recorded."""


@reads.get("/{job_id}/rollouts")
def list_rollouts(
    job_id: str,
    backends: BackendsDep,
    caller: CallerDep,
    purpose: str | None = None,
    iteration: int | None = None,
    status: str | None = None,
    limit: Annotated[int, Query(ge=1, le=5000)] = 100,
    offset: Annotated[int, Query(ge=0)] = 0,
) -> RolloutPage:
    with backends.store.read() as session:
        get_job(session, caller.org_id, job_id)
        rows, total = stored.list_rollouts(
            session, caller.org_id, job_id,
            purpose=purpose, iteration=iteration, status=status, limit=limit, offset=offset,
        )  # fmt: skip
    return RolloutPage(rollouts=rows, total=total)


@router.get("/rollouts/{rollout_id}")
def get_rollout(
    rollout_id: str, backends: BackendsDep, caller: CallerDep, session_id: str | None = None
) -> RolloutView:
    """`session_id` chooses an attempt; absent means the accepted one, else the latest."""
    found = service.read_rollout(backends, caller.org_id, rollout_id, session_id)
    return RolloutView(
        rollout=found.rollout,
        attempts=found.attempts,
        event_rewards=found.event_rewards,
        trajectory=found.trajectory,
    )
