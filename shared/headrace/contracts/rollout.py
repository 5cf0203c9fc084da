"""The order of a rollout: what a trainer or evaluator asks a worker to play."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from headrace.contracts.base import Contract
from headrace.contracts.policy import Sampling


class RolloutOrder(Contract):
    """Play one seed once. The payload of the Celery task `headrace.rollout`; holds no secret.

    The same `rollout_id` may be ordered again with a higher `attempt`. A delivery opens a session
    of its own, so two deliveries of one order never mix.
    """

    schema_version: Literal[1] = 1
    org_id: str
    job_id: str
    rollout_id: str
    attempt: int = Field(ge=1)
    timeline: int = Field(ge=1)
    purpose: str
    """`train`, or `eval` for rollouts that only measure."""
    iteration: int = Field(ge=0)
    group: int = Field(ge=0)
    member: int = Field(ge=0)
    seed: int
    """The task's seed, shared by all members of a group."""
    mode: Literal["rl", "eval"]
    serve_id: str
    task_url: str
    policy_url: str
    """Base of the gateway as the worker reaches it."""
    policy_public_url: str
    """Base of the gateway as the task app reaches it."""
    inference_url_form: Literal["path", "query"] | None = None
    """Where the inference URL has the session's id: `.../rollout/<id>/v1`, or `.../v1/chat/completions?cid=<id>`.

    None takes what the task app asks for in `/task_info`, else `path`.
    """
    env_name: str | None = None
    env_config: dict[str, Any] = {}
    policy_name: str | None = None
    policy_config: dict[str, Any] = {}
    ops: tuple[str, ...]
    sampling: Sampling
    model: str
    """Model name put into the policy config (task apps echo it to the inference URL)."""
    failure_reward: float | None = None
    """Return of an episode that the policy broke, where the task app gives none."""
    deadline_s: float = Field(gt=0)
    record_trace: bool = True
