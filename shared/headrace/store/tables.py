"""Tables. `org_id` is on each of them; a query without it is a bug.

Rows hold facts for people and for recovery; contracts travel between processes. Timestamps are
UTC. JSON columns hold what is shown or replayed whole, never what is filtered on.
"""

# SQLModel documents `__tablename__ = "..."`, which its own types do not admit.
# pyright: reportAssignmentType=false
from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Index, LargeBinary, Text, UniqueConstraint
from sqlmodel import Field, SQLModel

from headrace.store.columns import json_column, utc_time, utc_time_or_none


class Org(SQLModel, table=True):
    __tablename__ = "orgs"
    org_id: str = Field(primary_key=True)
    name: str
    created_at: datetime = utc_time()


class ApiKey(SQLModel, table=True):
    """A bearer key; only its sha256 is kept."""

    __tablename__ = "api_keys"
    key_id: str = Field(primary_key=True)
    org_id: str = Field(index=True)
    name: str
    prefix: str
    sha256: str = Field(unique=True)
    created_at: datetime = utc_time()
    revoked_at: datetime | None = utc_time_or_none()


class EnvironmentKey(SQLModel, table=True):
    """A task app's key, encrypted with HEADRACE_SECRET_KEY; several per org allow rotation."""

    __tablename__ = "environment_keys"
    env_key_id: str = Field(primary_key=True)
    org_id: str = Field(index=True)
    name: str
    prefix: str
    sha256: str
    """Of the key, so that storing it twice changes nothing."""
    ciphertext: bytes = Field(sa_type=LargeBinary)
    updated_at: datetime = utc_time()
    __table_args__ = (UniqueConstraint("org_id", "sha256"),)


class Job(SQLModel, table=True):
    __tablename__ = "jobs"
    job_id: str = Field(primary_key=True)
    org_id: str = Field(index=True)
    type: str
    status: str = Field(index=True)
    paused_reason: str | None = None
    """A flag on `running`: the job waits for what this names."""
    waiting_reason: str | None = None
    """Why a queued job has not been claimed."""
    pool: str = Field(index=True)
    topology: str | None = None
    model: str
    """As asked for: base or model id."""
    config_submitted: dict[str, Any] = json_column()
    """`data.config` of the request, as it came."""
    config_toml: str | None = Field(default=None, sa_type=Text)
    """The TOML text, when our command sent it."""
    config: dict[str, Any] = json_column()
    """The resolved config that the trainer runs."""
    tags: dict[str, Any] = json_column()
    data: dict[str, Any] = json_column()
    job_metadata: dict[str, Any] = json_column()
    idempotency_key: str | None = None
    body_sha256: str
    timeline: int = 0
    """Fencing token: raised by each (re)start of a trainer; writes of an older one change no row."""
    lease_owner: str | None = None
    lease_expires_at: datetime | None = utc_time_or_none()
    n_events: int = 0
    """Seq of the newest event."""
    cancel_requested: bool = False
    iteration: int = 0
    """Progress: iterations with a durable checkpoint (RL), optimiser steps (SFT), rollouts ended (evaluation)."""
    iterations: int = 0
    """Planned total in the same unit."""
    result: dict[str, Any] = json_column()
    """The report of a finished job."""
    model_id: str | None = Field(default=None, index=True)
    """`ft:<base>:<job>` once it succeeded."""
    error: str | None = Field(default=None, sa_type=Text)
    created_at: datetime = utc_time()
    updated_at: datetime = utc_time()
    started_at: datetime | None = utc_time_or_none()
    finished_at: datetime | None = utc_time_or_none()
    __table_args__ = (UniqueConstraint("org_id", "idempotency_key"),)


class JobRun(SQLModel, table=True):
    """One time that a job was queued: at its submission, and at each resume."""

    __tablename__ = "runs"
    job_id: str = Field(primary_key=True)
    run_number: int = Field(primary_key=True)
    """From 1."""
    org_id: str
    status: str
    created_at: datetime = utc_time()
    started_at: datetime | None = utc_time_or_none()
    ended_at: datetime | None = utc_time_or_none()


class JobEvent(SQLModel, table=True):
    """`seq` is per job, from 1, rising; only heartbeats that newer ones supersede leave gaps."""

    __tablename__ = "job_events"
    job_id: str = Field(primary_key=True)
    seq: int = Field(primary_key=True)
    org_id: str
    type: str
    level: str = "info"
    message: str = Field(sa_type=Text)
    data: dict[str, Any] = json_column()
    created_at: datetime = utc_time()


class Metric(SQLModel, table=True):
    """One value of one name at one step (from 1). All metrics of a step are written together."""

    __tablename__ = "metrics"
    job_id: str = Field(primary_key=True)
    name: str = Field(primary_key=True)
    step: int = Field(primary_key=True)
    org_id: str
    value: float
    phase: str | None = None
    created_at: datetime = utc_time()
    __table_args__ = (Index("ix_metrics_job_step", "job_id", "step"),)


class StoredFile(SQLModel, table=True):
    """An uploaded dataset; its bytes lie among the artifacts."""

    __tablename__ = "files"
    file_id: str = Field(primary_key=True)
    org_id: str = Field(index=True)
    filename: str
    purpose: str
    status: str
    n_bytes: int = Field(sa_type=BigInteger)
    n_rows: int | None = None
    sha256: str
    path: str
    error: str | None = None
    created_at: datetime = utc_time()


class Checkpoint(SQLModel, table=True):
    """A durable checkpoint; the row is written after its manifest, with the ledger, in one transaction."""

    __tablename__ = "checkpoints"
    checkpoint_id: str = Field(primary_key=True)
    org_id: str = Field(index=True)
    job_id: str = Field(index=True)
    timeline: int
    version: int
    """n of the policy version (timeline, n) whose weights it holds."""
    iteration: int
    step: int
    path: str
    """Folder relative to the artifact root; HF layout."""
    has_trainer_state: bool = True
    """False once the optimiser state was removed (only the newest are resumable)."""
    is_kept: bool = False
    """Kept for good; the others are removed as newer ones come."""
    history: list[Any] = json_column(list)
    """The chain of policy versions from the start to this checkpoint, as `[[timeline, first, last], ...]`."""
    metrics: dict[str, Any] = json_column()
    created_at: datetime = utc_time()
    __table_args__ = (UniqueConstraint("job_id", "timeline", "iteration"),)


class Rollout(SQLModel, table=True):
    """One planned rollout and what became of it. The trainer plans; the recorder writes the outcome."""

    __tablename__ = "rollouts"
    rollout_id: str = Field(primary_key=True)
    org_id: str
    job_id: str = Field(index=True)
    purpose: str
    iteration: int
    group_index: int
    member: int
    seed: int = Field(sa_type=BigInteger)
    timeline: int
    """Timeline of the latest plan or attempt."""
    status: str = "planned"
    """planned, scored, policy_failed, infra_failed, cancelled."""
    session_id: str | None = None
    """The accepted attempt."""
    outcome_reward: float | None = None
    event_reward_sum: float | None = None
    n_turns: int | None = None
    n_prompt_tokens: int | None = None
    n_sampled_tokens: int | None = None
    min_version: str | None = None
    max_version: str | None = None
    reason: str | None = Field(default=None, sa_type=Text)
    created_at: datetime = utc_time()
    finished_at: datetime | None = utc_time_or_none()
    __table_args__ = (Index("ix_rollouts_job_iteration", "job_id", "purpose", "iteration"),)


class Attempt(SQLModel, table=True):
    """Every attempt at a rollout, with the reason where it failed. `session_id` makes writing it idempotent."""

    __tablename__ = "attempts"
    session_id: str = Field(primary_key=True)
    org_id: str
    job_id: str = Field(index=True)
    rollout_id: str = Field(index=True)
    attempt: int
    timeline: int
    outcome: str
    verdict: str
    """What the stream made of it: accepted, duplicate, stale, record."""
    reason: str | None = Field(default=None, sa_type=Text)
    boundary: str | None = None
    started_at: datetime = utc_time()
    finished_at: datetime = utc_time()


class EventRewardRow(SQLModel, table=True):
    __tablename__ = "event_rewards"
    session_id: str = Field(primary_key=True)
    position: int = Field(primary_key=True)
    org_id: str
    job_id: str = Field(index=True)
    rollout_id: str = Field(index=True)
    turn: int
    call: int | None = None
    key: str
    value: float
    type: str


class OutcomeRewardRow(SQLModel, table=True):
    __tablename__ = "outcome_rewards"
    session_id: str = Field(primary_key=True)
    org_id: str
    job_id: str = Field(index=True)
    rollout_id: str = Field(index=True)
    value: float
    source: str | None = None
    disagreement: str | None = None


class Trace(SQLModel, table=True):
    """Where the whole trajectory of an attempt lies (JSON, zstd)."""

    __tablename__ = "traces"
    session_id: str = Field(primary_key=True)
    org_id: str
    job_id: str = Field(index=True)
    rollout_id: str = Field(index=True)
    path: str
    sha256: str
    created_at: datetime = utc_time()


class LedgerEntry(SQLModel, table=True):
    """What moved which optimiser step: one row per rollout in the surviving weights' history.

    A rollout that was not trained on has no step and names the reason.
    """

    __tablename__ = "ledger"
    job_id: str = Field(primary_key=True)
    rollout_id: str = Field(primary_key=True)
    org_id: str
    session_id: str | None = None
    attempt: int | None = None
    timeline: int
    iteration: int
    step: int | None = None
    not_trained_reason: str | None = None
    advantage: float | None = None
    n_trainable_tokens: int = 0
    min_version: str | None = None
    max_version: str | None = None
    created_at: datetime = utc_time()
