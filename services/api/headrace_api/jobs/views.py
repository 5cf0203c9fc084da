"""What clients see of a job. One model per answer; the contract's older names stand beside ours."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Self

from pydantic import BaseModel

from headrace.store.tables import Checkpoint, Job, JobEvent, JobRun, LedgerEntry


class NoteView(BaseModel):
    """What is to be known of a job's config: replaced, unknown and unused keys."""

    type: str
    message: str
    keys: list[str]


class JobView(BaseModel):
    job_id: str
    id: str
    type: str
    job_type: str
    status: str
    pool: str
    topology: str | None
    model: str
    model_id: str | None
    fine_tuned_model: str | None
    linked_job_id: str
    iteration: int
    iterations: int
    timeline: int
    paused_reason: str | None
    waiting_reason: str | None
    cancel_requested: bool
    error: str | None
    tags: dict[str, Any]
    data: dict[str, Any]
    metadata: dict[str, Any]
    result: dict[str, Any]
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    notes: list[NoteView]

    @classmethod
    def of(cls, job: Job, notes: Iterable[JobEvent]) -> Self:
        same = {name: getattr(job, name) for name in cls.model_fields if name in Job.model_fields}
        return cls(
            **same,
            id=job.job_id,
            job_type=job.type,
            fine_tuned_model=job.model_id,
            linked_job_id=job.job_id,
            metadata=job.job_metadata,
            notes=[
                NoteView(type=one.type, message=one.message, keys=one.data.get("keys", [])) for one in notes
            ],
        )


class JobList(BaseModel):
    jobs: list[JobView]
    has_more: bool


class JobStatusView(BaseModel):
    job_id: str
    status: str
    progress: float
    """Share of the planned iterations that are done, 0 to 1."""
    updated_at: datetime


class JobConfig(BaseModel):
    submitted: dict[str, Any]
    toml: str | None
    resolved: dict[str, Any]


class Phase(BaseModel):
    phase: str
    metadata: dict[str, Any]
    created_at: datetime


class Timeline(BaseModel):
    job_id: str
    events: list[Phase]
    timeline: list[Phase]
    """The same list; clients look under either name."""


class Run(BaseModel):
    run_number: int
    engine: str
    status: str
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None

    @classmethod
    def of(cls, row: JobRun) -> Self:
        return cls(engine="headrace", **row.model_dump(exclude={"org_id", "job_id"}))


class RunList(BaseModel):
    runs: list[Run]


class CheckpointView(BaseModel):
    checkpoint_id: str
    job_id: str
    timeline: int
    version: int
    iteration: int
    step: int
    path: str
    """The folder on the server, in HF layout."""
    is_kept: bool
    has_trainer_state: bool
    metrics: dict[str, Any]
    created_at: datetime

    @classmethod
    def of(cls, row: Checkpoint, path: str) -> Self:
        return cls(**row.model_dump(exclude={"org_id", "path", "history"}), path=path)


class CheckpointList(BaseModel):
    checkpoints: list[CheckpointView]


class LedgerEntryView(BaseModel):
    rollout_id: str
    session_id: str | None
    attempt: int | None
    timeline: int
    iteration: int
    step: int | None
    not_trained_reason: str | None
    advantage: float | None
    n_trainable_tokens: int
    min_version: str | None
    max_version: str | None

    @classmethod
    def of(cls, row: LedgerEntry) -> Self:
        return cls.model_validate(row, from_attributes=True)


class LedgerSummaryView(BaseModel):
    planned: int
    trained: int
    not_trained: dict[str, int]
    is_complete: bool


class Ledger(BaseModel):
    entries: list[LedgerEntryView]
    summary: LedgerSummaryView
