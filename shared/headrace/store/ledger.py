"""The ledger: which rollout moved which optimiser step of the weights that survive.

Rows are written in the transaction that makes their checkpoint known, so a step that a restart
undoes leaves none. Each planned rollout ends with exactly one row: trained, or the reason why not.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import delete, exists, select
from sqlmodel import Session, col

from headrace.ids import TRAIN
from headrace.store.tables import LedgerEntry, Rollout


def add(session: Session, entries: Iterable[LedgerEntry]) -> None:
    """Append rows; a rollout that has one already is a fault and fails the transaction."""
    session.add_all(list(entries))
    session.flush()


def undo_after(session: Session, job_id: str, iteration: int) -> None:
    """Drop the rows of iterations that a restart from an older checkpoint undoes."""
    session.execute(
        delete(LedgerEntry).where(col(LedgerEntry.job_id) == job_id, col(LedgerEntry.iteration) > iteration)
    )


def close_iterations(session: Session, job_id: str, last_iteration: int, reason: str) -> None:
    """Give each planned training rollout up to `last_iteration` that has no row one with `reason`."""
    _close(session, job_id, reason, col(Rollout.iteration) <= last_iteration)


def close(session: Session, job_id: str, reason: str) -> None:
    """Give each planned training rollout of a finished job that has no row one with `reason`."""
    _close(session, job_id, reason)


def _close(session: Session, job_id: str, reason: str, *conditions: object) -> None:
    has_row = exists().where(
        col(LedgerEntry.job_id) == job_id, col(LedgerEntry.rollout_id) == col(Rollout.rollout_id)
    )
    statement = select(Rollout).where(
        col(Rollout.job_id) == job_id,
        col(Rollout.purpose) == TRAIN,
        ~has_row,
        *conditions,  # type: ignore[arg-type]
    )
    for row in session.execute(statement).scalars():
        session.add(
            LedgerEntry(
                job_id=job_id,
                rollout_id=row.rollout_id,
                org_id=row.org_id,
                session_id=row.session_id,
                timeline=row.timeline,
                iteration=row.iteration,
                not_trained_reason=row.reason or reason,
            )
        )
