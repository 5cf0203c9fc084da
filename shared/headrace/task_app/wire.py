"""The request of a rollout as the contract has it: tolerant, unknown keys are kept and ignored."""

from __future__ import annotations

from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

AGENT_OPS = frozenset({"agent", "policy", "model"})
ENV_OPS = frozenset({"env", "environment", "step"})


class _Tolerant(BaseModel):
    model_config = ConfigDict(extra="allow")


class EnvSpec(_Tolerant):
    env_id: str | None = None
    env_name: str | None = None
    seed: int | None = None
    config: dict[str, Any] = {}


class PolicySpec(_Tolerant):
    policy_id: str | None = None
    policy_name: str | None = None
    config: dict[str, Any] = {}


class RecordSpec(_Tolerant):
    trajectories: bool = True
    return_trace: bool = False
    trace_format: Literal["compact", "full", "structured"] = "compact"


class SafetySpec(_Tolerant):
    max_ops: int = Field(default=100_000, ge=1)
    max_time_s: float = Field(default=3600.0, gt=0)


class RolloutRequest(_Tolerant):
    """Play one seed once. `ops` come as names or as `{"type": name}`; here they are names."""

    run_id: str
    env: EnvSpec = EnvSpec()
    policy: PolicySpec = PolicySpec()
    ops: list[Literal["agent", "env"]] = Field(min_length=1)
    record: RecordSpec = RecordSpec()
    on_done: Literal["reset", "terminate"] = "reset"
    """Both end the rollout: a rollout is one episode, and each episode has an environment of its own."""
    safety: SafetySpec = SafetySpec()
    mode: Literal["rl", "eval"] = "eval"

    @field_validator("ops", mode="before")
    @classmethod
    def _names_of_ops(cls, ops: Any) -> Any:
        if not isinstance(ops, list):
            return ops
        return [_op_name(op) for op in ops]

    @field_validator("ops")
    @classmethod
    def _each_reply_is_stepped(cls, ops: list[str]) -> list[str]:
        for index in range(1, len(ops)):
            if ops[index - 1] == ops[index] == "agent":
                raise ValueError(f"ops[{index}] asks the policy before the environment saw its last reply")
        return ops

    @property
    def correlation_id(self) -> str | None:
        """The caller's id of this rollout: from the policy's config, else from its inference URL."""
        config = self.policy.config
        for key in ("trace_correlation_id", "trace"):
            if isinstance(config.get(key), str):
                return config[key]
        query = parse_qs(urlsplit(str(config.get("inference_url", ""))).query)
        for key in ("cid", "trace_correlation_id", "trace"):
            if key in query:
                return query[key][0]
        return None


def _op_name(op: Any) -> Any:
    name = op.get("type") if isinstance(op, dict) else op
    if name in AGENT_OPS:
        return "agent"
    return "env" if name in ENV_OPS else name
