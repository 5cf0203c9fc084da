"""What clients see of a verification. No key is ever in it."""

from __future__ import annotations

from pydantic import BaseModel

from headrace.contracts.task_app import TaskFacts


class TaskAppAddress(BaseModel):
    endpoint_base_url: str
    policy_url: str | None = None
    """Where the task app will reach the policy; absent means HEADRACE_POLICY_PUBLIC_URL of the server."""


class KeyAttempt(BaseModel):
    """The task app asked with one stored key."""

    ok: bool
    status: int
    """HTTP status of the last answer; 0 when there was none."""
    path: str
    key_prefix: str | None
    """At most 4 characters and never more than half of the key; None without one."""
    error: str | None = None
    cause: str | None = None
    """What most likely lies behind the error, on one line."""


class PolicyCallback(BaseModel):
    """Whether the task app, called by the API, could call the policy."""

    url: str
    is_reachable: bool | None
    """None when it was not tested."""
    detail: str


class Verification(BaseModel):
    any_ok: bool
    candidates_first15: int
    """How many keys were tried; none is ever shown."""
    attempts: list[KeyAttempt]
    task_info: TaskFacts | None
    policy_callback: PolicyCallback
