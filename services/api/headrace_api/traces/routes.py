"""Rollouts of a job, and one rollout with its attempts, rewards and trajectory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from headrace.store import rollouts as stored
from headrace.store.jobs import get_job
from headrace.store.tables import Attempt, EventRewardRow, Rollout
from headrace_api.deps import BackendsDep, CallerDep
from headrace_api.jsonl import Format, jsonl_response
from headrace_api.traces import service

EXPORT_PAGE = 2000

router = APIRouter(tags=["rollouts"])
reads = APIRouter(tags=["rollouts"])


class RolloutPage(BaseModel):
    rollouts: list[Rollout]
    total: int


class AttemptList(BaseModel):
    attempts: list[Attempt]


class RolloutView(BaseModel):
    rollout: Rollout
    attempts: list[Attempt]
    event_rewards: list[EventRewardRow]
    trajectory: dict[str, Any] | None
    """The stored trajectory with full messages per call; None before it is recorded."""


@reads.get("/{job_id}/rollouts", response_model=RolloutPage)
def list_rollouts(
    job_id: str,
    backends: BackendsDep,
    caller: CallerDep,
    purpose: str | None = None,
    iteration: int | None = None,
    status: str | None = None,
    limit: Annotated[int, Query(ge=1, le=5000)] = 100,
    offset: Annotated[int, Query(ge=0)] = 0,
    format: Format = "json",
) -> RolloutPage | StreamingResponse:
    """A page by iteration, group and member; `format=jsonl` streams all that fit."""

    def read(limit: int, offset: int) -> RolloutPage:
        with backends.store.read() as session:
            get_job(session, caller.org_id, job_id)
            rows, total = stored.list_rollouts(
                session, caller.org_id, job_id,
                purpose=purpose, iteration=iteration, status=status, limit=limit, offset=offset,
            )  # fmt: skip
        return RolloutPage(rollouts=rows, total=total)

    page = read(limit, offset)
    if format == "json":
        return page
    return jsonl_response(_all(read), f"{job_id}.rollouts.jsonl")


def _all(read: Callable[[int, int], RolloutPage]) -> Iterator[Rollout]:
    offset = 0
    while page := read(EXPORT_PAGE, offset).rollouts:
        yield from page
        offset += len(page)


@reads.get("/{job_id}/failed-attempts")
def list_failed_attempts(
    job_id: str,
    backends: BackendsDep,
    caller: CallerDep,
    after: str | None = None,
    limit: Annotated[int, Query(ge=1, le=5000)] = 500,
) -> AttemptList:
    """Attempts that were not scored, oldest first; `after` is the session id of the last one seen."""
    with backends.store.read() as session:
        get_job(session, caller.org_id, job_id)
        return AttemptList(attempts=stored.failed_attempts(session, job_id, after, limit))


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
