"""From a job's config to the orders of its rollouts. Pure; imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from headrace.contracts.policy import Sampling
from headrace.contracts.rollout import RolloutOrder
from headrace.store.plan import PlannedRollout


@dataclass(frozen=True)
class OrderTemplate:
    """What all orders of one purpose and iteration have in common."""

    org_id: str
    job_id: str
    timeline: int
    purpose: str
    iteration: int
    mode: Literal["rl", "eval"]
    serve_id: str
    task_url: str
    policy_url: str
    policy_public_url: str
    env_name: str | None
    env_config: dict[str, Any]
    policy_name: str | None
    policy_config: dict[str, Any]
    ops: tuple[str, ...]
    sampling: Sampling
    model: str
    failure_reward: float | None
    deadline_s: float
    record_trace: bool
    inference_url_form: Literal["path", "query"] | None = None

    def order(self, planned: PlannedRollout, attempt: int) -> RolloutOrder:
        """The order of one attempt at one planned rollout."""
        common = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return RolloutOrder(
            **common,
            rollout_id=planned.rollout_id,
            attempt=attempt,
            group=planned.group,
            member=planned.member,
            seed=planned.seed,
        )


def policy_config(
    asked: dict[str, Any], model: str, temperature: float, max_tokens: int | None
) -> dict[str, Any]:
    """The `policy.config` that a task app gets: what the job's config asks for, and how it will be sampled."""
    config = {**asked, "model": model, "temperature": temperature}
    if max_tokens is not None:
        config["max_tokens"] = max_tokens
    return config


def env_config(asked: dict[str, Any], split: str | None) -> dict[str, Any]:
    """The `env.config` that a task app gets."""
    return {**asked, "split": split} if split is not None else dict(asked)
