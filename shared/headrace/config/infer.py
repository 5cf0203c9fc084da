"""The job type that a config stands for."""

from __future__ import annotations

from typing import Any

from headrace.contracts.job import JobType

_RL_METHODS = ("policy_gradient", "ppo", "reinforce")
_RL_VARIETIES = ("gspo", "grpo", "ppo")
_SFT_METHODS = ("supervised_finetune", "sft")


def infer_type(raw: dict[str, Any]) -> JobType | None:
    """The first of these that tells: `[algorithm]`, our own words for it, and keys that one type alone has.

    None when nothing tells. Values may be in capitals.
    """
    return _of_algorithm(_table(raw, "algorithm")) or _declared(raw) or _of_own_keys(raw)


def _of_algorithm(algorithm: dict[str, Any]) -> JobType | None:
    method, kind, variety = (_lower(algorithm, key) for key in ("method", "type", "variety"))
    if method in _RL_METHODS or kind == "online" or variety in _RL_VARIETIES:
        return JobType.RL
    if method in _SFT_METHODS or kind == "offline" or variety == "fft":
        return JobType.SFT
    return None


def _declared(raw: dict[str, Any]) -> JobType | None:
    for key in ("type", "job_type"):
        value = _lower(raw, key)
        if value in tuple(JobType):
            return JobType(value)
    return JobType.EVAL if "evaluation_job" in raw else None


def _of_own_keys(raw: dict[str, Any]) -> JobType | None:
    services = _table(raw, "services")
    if services.get("task_url") or services.get("environment"):
        return JobType.RL
    is_sft = _lower(_table(raw, "training"), "mode").startswith("sft")
    if is_sft or _lower(_table(raw, "hyperparameters"), "train_kind") in ("sft", "fft"):
        return JobType.SFT
    return None


def _table(raw: dict[str, Any], name: str) -> dict[str, Any]:
    value = raw.get(name)
    return value if isinstance(value, dict) else {}


def _lower(table: dict[str, Any], key: str) -> str:
    value = table.get(key)
    return value.strip().lower() if isinstance(value, str) else ""
