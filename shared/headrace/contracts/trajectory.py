"""A trajectory: the record of one attempt at a rollout, from order to rewards and exact tokens."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from headrace.contracts.base import Contract
from headrace.contracts.policy import Call


class Outcome(StrEnum):
    """How an attempt ended. Only the first two have a reward and may be trained on."""

    SCORED = "scored"
    """The episode ran to its end (or to a limit) and the task app rewarded it."""
    POLICY_FAILED = "policy_failed"
    """The episode ran and the policy broke it: context overflow, a request the engine refuses."""
    INFRA_FAILED = "infra_failed"
    """Something outside the policy broke; never a reward, ordered again within a bound."""
    CANCELLED = "cancelled"
    """The job was cancelled, or a newer timeline took over."""

    @property
    def has_reward(self) -> bool:
        return self in (Outcome.SCORED, Outcome.POLICY_FAILED)


class EventReward(Contract):
    """A reward during the episode, attached to the call that caused it."""

    turn: int = Field(ge=0)
    """Turn of the episode, from 0."""
    call: int | None = None
    """Index of the causing call in the session; None when the session has no answered call."""
    key: str = "reward"
    value: float = Field(allow_inf_nan=False)
    type: str = "sparse"


class Rewards(Contract):
    """What the task app gave, normalised; `source` names the field of its answer that was trusted."""

    outcome_reward: float | None = Field(default=None, allow_inf_nan=False)
    event_rewards: tuple[EventReward, ...] = ()
    source: str | None = None
    disagreement: str | None = None
    """Set when two fields of the answer gave different outcomes; recorded, never averaged."""


class Op(Contract):
    """One step of the episode as the task app reported it: enough for a replay without a policy."""

    index: int = Field(ge=0)
    observation: Any = None
    action: Any = None
    """Tool calls or text that the agent gave."""
    reward: float | None = None
    is_done: bool = False
    is_truncated: bool = False
    is_invalid_action: bool | None = None
    latency_s: float | None = None
    """Time the environment took, where the app reports it (`info.latency_ms`)."""
    info: dict[str, Any] = {}


class TaskAppIdentity(Contract):
    task_id: str | None = None
    version: str | None = None


class Trajectory(Contract):
    """One attempt, as it travels on the job's stream and is stored as a trace."""

    schema_version: Literal[1] = 1
    org_id: str
    job_id: str
    rollout_id: str
    session_id: str
    attempt: int
    timeline: int
    purpose: str
    iteration: int
    group: int
    member: int
    seed: int
    outcome: Outcome
    reason: str | None = None
    """Why it is not simply scored; one sentence."""
    boundary: str | None = None
    """Where an infrastructure failure happened: `task_app`, `policy`, `worker`."""
    rewards: Rewards = Rewards()
    is_truncated: bool = False
    ops: tuple[Op, ...] = ()
    final_observation: Any = None
    details: dict[str, Any] = {}
    task_app: TaskAppIdentity = TaskAppIdentity()
    calls: tuple[Call, ...] = ()
    started_at: float
    finished_at: float

    @model_validator(mode="after")
    def _rewarded_exactly_when_it_may_be_trained_on(self) -> Self:
        has = self.rewards.outcome_reward is not None
        if self.outcome.has_reward != has:
            raise ValueError(f"{self.rollout_id}: outcome {self.outcome} with reward present: {has}")
        return self


class TrajectoryRef(Contract):
    """Where a trajectory above the stream's size limit lies among the artifacts."""

    path: str
    """Relative to the artifact root."""
    sha256: str
    n_bytes: int
