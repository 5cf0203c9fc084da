"""Metrics: one value per job, name and step; all names of a step are written together."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import delete, select
from sqlmodel import Session, col

from headrace.store.tables import Metric


def write(
    session: Session, org_id: str, job_id: str, step: int, values: Mapping[str, float], phase: str
) -> None:
    """Write the values of one step (from 1), replacing what an undone timeline left there."""
    session.execute(delete(Metric).where(col(Metric.job_id) == job_id, col(Metric.step) == step))
    session.add_all(
        Metric(job_id=job_id, name=name, step=step, org_id=org_id, value=value, phase=phase)
        for name, value in values.items()
    )


def forget_after(session: Session, job_id: str, step: int) -> None:
    """Drop the points of steps that a restart undoes."""
    session.execute(delete(Metric).where(col(Metric.job_id) == job_id, col(Metric.step) > step))


def has_step(session: Session, job_id: str, step: int) -> bool:
    statement = (
        select(col(Metric.step)).where(col(Metric.job_id) == job_id, col(Metric.step) == step).limit(1)
    )
    return session.execute(statement).first() is not None
