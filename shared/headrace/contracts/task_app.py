"""What a task app says of itself, read tolerantly: apps of several versions answer `/task_info` differently."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, Self

from headrace.contracts.base import Contract


def auth_headers(keys: Sequence[str]) -> dict[str, str]:
    """Headers that offer all environment keys, so that rotating them needs no change here."""
    if not keys:
        return {}
    return {"X-API-Key": keys[0], "X-API-Keys": ",".join(keys), "Authorization": f"Bearer {keys[0]}"}


def refusal(status: int, text: str, keys: Sequence[str]) -> str:
    """What an answer other than 200 says, in one sentence that never holds a key.

    Released apps answer a wrong key with 400 and a body of their own.
    """
    if status in (401, 403) or (status == 400 and "unauthorised" in text):
        return (
            f"the task app refused the environment key (status {status}); "
            "store the right one with `headrace keys upload-env`"
        )
    for key in keys:
        text = text.replace(key, "***")
    return f"the task app answered {status}: {_detail(text)[:300]}"


def _detail(text: str) -> str:
    """The message of an error body of the contract, else the text itself, on one line."""
    try:
        error = json.loads(text)["detail"]["error"]
        return f"{error['code']}: {error['message']}"
    except (ValueError, LookupError, TypeError, RecursionError):
        return " ".join(text.split())


class TaskFacts(Contract):
    """The part of `/task_info` (asked without a seed) that planning needs; None where the app is silent."""

    task_id: str | None = None
    version: str | None = None
    seed_range: tuple[int, int] | None = None
    """First and last training seed, both included."""
    reward_range: tuple[float, float] | None = None

    @classmethod
    def parse(cls, answer: Any) -> Self:
        """Read an answer of any shape; what does not fit is left out."""
        info = _table(answer)
        taskset, task = _table(info.get("taskset")) or info, _table(info.get("task"))
        seeds = _pair(taskset.get("seed_range"))
        return cls(
            task_id=_text(taskset.get("id") or task.get("id")),
            version=_text(taskset.get("version") or task.get("version")),
            seed_range=(int(seeds[0]), int(seeds[1])) if seeds else None,
            reward_range=_pair(info.get("reward_range")) or _pair(taskset.get("reward_range")),
        )


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    return str(value) if value is not None else None


def _pair(value: Any) -> tuple[float, float] | None:
    if not isinstance(value, list | tuple) or len(value) != 2:
        return None
    low, high = value
    for bound in (low, high):
        if isinstance(bound, bool) or not isinstance(bound, int | float) or not math.isfinite(bound):
            return None
    return (low, high) if low <= high else None
