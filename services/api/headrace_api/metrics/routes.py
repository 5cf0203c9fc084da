"""`GET .../{job_id}/metrics`: points with a cursor over steps."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel

from headrace.store.jobs import get_job
from headrace.store.progress import metric_points
from headrace_api.deps import BackendsDep, CallerDep

router = APIRouter(tags=["metrics"])


class MetricPoint(BaseModel):
    name: str
    value: float
    step: int
    phase: str | None
    created_at: datetime


class MetricPage(BaseModel):
    job_id: str
    points: list[MetricPoint]


@router.get("/{job_id}/metrics")
def get_metrics(
    job_id: str,
    backends: BackendsDep,
    caller: CallerDep,
    after_step: int = -1,
    limit: Annotated[int, Query(ge=1, le=100_000)] = 5000,
    name: str | None = None,
) -> MetricPage:
    """Points of later steps, ordered by step and name; a page ends between two steps."""
    with backends.store.read() as session:
        get_job(session, caller.org_id, job_id)
        points = [
            MetricPoint.model_validate(point, from_attributes=True)
            for point in metric_points(session, job_id, after_step, name, limit)
        ]
    return MetricPage(job_id=job_id, points=points)
