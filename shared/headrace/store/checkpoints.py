"""Checkpoint rows. A folder counts only once its row exists; a row is written only once its manifest does."""

from __future__ import annotations

from sqlalchemy import delete, select
from sqlmodel import Session, col

from headrace.store.tables import Checkpoint


def newest_resumable(session: Session, job_id: str) -> list[Checkpoint]:
    """Checkpoints that hold the trainer's state, newest first."""
    statement = (
        select(Checkpoint)
        .where(col(Checkpoint.job_id) == job_id, col(Checkpoint.has_trainer_state))
        .order_by(col(Checkpoint.timeline).desc(), col(Checkpoint.iteration).desc())
    )
    return list(session.execute(statement).scalars())


def of_job(session: Session, job_id: str) -> list[Checkpoint]:
    """All checkpoints of a job, oldest first."""
    statement = (
        select(Checkpoint)
        .where(col(Checkpoint.job_id) == job_id)
        .order_by(col(Checkpoint.timeline), col(Checkpoint.iteration))
    )
    return list(session.execute(statement).scalars())


def undo_after(session: Session, job_id: str, iteration: int) -> None:
    """Drop the rows of checkpoints that a restart from an older one undoes."""
    session.execute(
        delete(Checkpoint).where(col(Checkpoint.job_id) == job_id, col(Checkpoint.iteration) > iteration)
    )
