"""Jobs: their kinds, statuses and the table of legal moves."""

from __future__ import annotations

from enum import StrEnum


class JobType(StrEnum):
    RL = "rl"
    SFT = "sft"
    EVAL = "eval"


class JobStatus(StrEnum):
    """`paused` is a flag with a reason on `running`, never a status: existing pollers would not know it."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        return self in (JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED)


LEGAL_MOVES: dict[JobStatus, frozenset[JobStatus]] = {
    JobStatus.QUEUED: frozenset({JobStatus.RUNNING, JobStatus.CANCELLED, JobStatus.FAILED}),
    JobStatus.RUNNING: frozenset({JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED}),
    JobStatus.FAILED: frozenset({JobStatus.QUEUED}),
    JobStatus.CANCELLED: frozenset({JobStatus.QUEUED}),
    JobStatus.SUCCEEDED: frozenset(),
}
"""From a status to those it may become; a take-over of a running job is a new timeline, not a move."""
