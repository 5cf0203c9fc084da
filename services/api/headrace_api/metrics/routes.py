"""`GET .../{job_id}/metrics` and `.../rewards`: a page with a cursor over steps, or all as JSONL."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from headrace.contracts.job import JobType
from headrace.ids import EVAL, TRAIN
from headrace.store.jobs import get_job
from headrace.store.progress import metric_points
from headrace.store.rewards import iteration_rewards
from headrace.store.tables import Job
from headrace_api.deps import Backends, BackendsDep, CallerDep
from headrace_api.jsonl import Format, jsonl_response

router = APIRouter(tags=["metrics"])

EXPORT_PAGE = 5000
EXPORT_ITERATIONS = 200

AfterStep = Annotated[int, Query(ge=-(2**53), le=2**53)]


class MetricPoint(BaseModel):
    name: str
    value: float
    """JSON has no NaN and no infinity: they read as null."""
    step: int
    phase: str | None
    created_at: datetime


class MetricPage(BaseModel):
    job_id: str
    points: list[MetricPoint]


class EventRateView(BaseModel):
    frequency: float
    mean: float


class IterationView(BaseModel):
    """Rewards of one iteration (of an evaluation job: of all its episodes, as iteration 0)."""

    iteration: int
    purpose: str
    n: int
    reward_mean: float
    return_mean: float
    std: float
    min: float
    max: float
    events: dict[str, EventRateView]


class RewardPage(BaseModel):
    job_id: str
    purpose: str
    rewards: list[IterationView]
    has_more: bool


@router.get("/{job_id}/metrics", response_model=MetricPage)
def get_metrics(
    job_id: str,
    backends: BackendsDep,
    caller: CallerDep,
    after_step: AfterStep = -1,
    limit: Annotated[int, Query(ge=1, le=100_000)] = 5000,
    name: str | None = None,
    format: Format = "json",
) -> MetricPage | StreamingResponse:
    """Points of later steps, ordered by step and name; a page ends between two steps.

    `format=jsonl` streams all of them, one per line, whatever the limit.
    """
    with backends.store.read() as session:
        get_job(session, caller.org_id, job_id)
    if format == "jsonl":
        return jsonl_response(_all_points(backends, job_id, after_step, name), f"{job_id}.metrics.jsonl")
    return MetricPage(job_id=job_id, points=_points(backends, job_id, after_step, name, limit))


@router.get("/{job_id}/rewards", response_model=RewardPage)
def get_rewards(
    job_id: str,
    backends: BackendsDep,
    caller: CallerDep,
    purpose: Literal["train", "eval"] | None = None,
    after_step: AfterStep = -1,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
    format: Format = "json",
) -> RewardPage | StreamingResponse:
    """Rewards and events of later iterations, from what is stored of each accepted rollout.

    `purpose` chooses training or evaluation episodes; absent means what the job itself is.
    """
    with backends.store.read() as session:
        job = get_job(session, caller.org_id, job_id)
    chosen = purpose or (EVAL if job.type == JobType.EVAL else TRAIN)
    if format == "jsonl":
        return jsonl_response(_all_rewards(backends, job, chosen, after_step), f"{job_id}.rewards.jsonl")
    rows, has_more = _rewards(backends, job, chosen, after_step, limit)
    return RewardPage(job_id=job_id, purpose=chosen, rewards=rows, has_more=has_more)


def _points(backends: Backends, job_id: str, after: int, name: str | None, limit: int) -> list[MetricPoint]:
    with backends.store.read() as session:
        rows = metric_points(session, job_id, after, name, limit)
    return [MetricPoint.model_validate(row, from_attributes=True) for row in rows]


def _all_points(backends: Backends, job_id: str, after: int, name: str | None) -> Iterator[MetricPoint]:
    """Page by page, so that a slow reader holds no transaction open."""
    while page := _points(backends, job_id, after, name, EXPORT_PAGE):
        yield from page
        after = page[-1].step


def _rewards(
    backends: Backends, job: Job, purpose: str, after: int, limit: int
) -> tuple[list[IterationView], bool]:
    credit = (job.config.get("training") or {}).get("credit")
    with backends.store.read() as session:
        rows, has_more = iteration_rewards(
            session, job.org_id, job.job_id,
            purpose=purpose, after_step=after, limit=limit,
            with_events_in_return=purpose == TRAIN and credit == "outcome_plus_events",
        )  # fmt: skip
    views = [IterationView(purpose=purpose, **asdict(row)) for row in rows]
    return views, has_more


def _all_rewards(backends: Backends, job: Job, purpose: str, after: int) -> Iterator[IterationView]:
    has_more = True
    while has_more:
        page, has_more = _rewards(backends, job, purpose, after, EXPORT_ITERATIONS)
        yield from page
        after = page[-1].iteration if page else after
