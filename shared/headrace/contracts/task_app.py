"""What a task app says of itself, read tolerantly: apps of several versions answer `/task_info` differently."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any, Self

from headrace.contracts.base import Contract


def auth_headers(keys: Sequence[str]) -> dict[str, str]:
    """Headers that offer all environment keys, so that rotating them needs no change here."""
    if not keys:
        return {}
    return {"X-API-Key": keys[0], "X-API-Keys": ",".join(keys), "Authorization": f"Bearer {keys[0]}"}


def is_key_refusal(status: int, text: str) -> bool:
    """Whether an answer means that the environment key is wrong."""
    return status in (401, 403) or (status == 400 and "unauthorised" in text)


def refusal(status: int, text: str, keys: Sequence[str]) -> str:
    """What an answer other than 200 says, in one sentence that never holds a key.

    Released apps answer a wrong key with 400 and a body of their own.
    """
    if is_key_refusal(status, text):
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
    """What `/task_info` tells, as far as planning and a person's choices need it; empty where the app is silent."""

    task_id: str | None = None
    name: str | None = None
    version: str | None = None
    splits: tuple[str, ...] = ()
    default_split: str | None = None
    sizes: dict[str, int] = {}
    """Tasks per split."""
    seed_range: tuple[int, int] | None = None
    """First and last seed of the default split, both included."""
    seed_ranges: dict[str, tuple[int, int]] = {}
    """The same for each split, where the app tells them apart."""
    reward_range: tuple[float, float] | None = None
    max_turns: int | None = None
    timeout_s: float | None = None
    rubrics: tuple[str, ...] = ()
    """Criteria that the app scores by, as `id: description`."""
    capabilities: dict[str, Any] = {}

    @classmethod
    def parse(cls, answer: Any, one: Any = None) -> Self:
        """Read the answer without a seed, and the TaskInfo of `one` seed where it was asked for.

        Apps of several versions answer in other shapes; what does not fit is left out.
        """
        info, instance = _table(answer), _table(one[0] if isinstance(one, list) and one else one)
        dataset = _table(instance.get("dataset")) or _table(info.get("dataset"))
        taskset = _table(info.get("taskset")) or info
        task = _table(info.get("task")) or _table(instance.get("task"))
        places = (taskset, dataset, task)
        limits = {**_table(info.get("limits")), **_table(instance.get("limits"))}
        seeds = _seeds(_first(places[:2], "seed_range"))
        return cls(
            task_id=_text(taskset.get("id") or task.get("id")),
            name=_text(taskset.get("name") or task.get("name")),
            version=_text(taskset.get("version") or task.get("version")),
            splits=_names(_first(places[:2], "splits")),
            default_split=_text(_first(places[:2], "default_split")),
            sizes=_counts(_first(places[:2], "sizes")),
            seed_range=seeds,
            seed_ranges=_ranges(_first(places[:2], "seed_ranges")),
            reward_range=_pair(info.get("reward_range"))
            or _pair(taskset.get("reward_range"))
            or _pair(instance.get("reward_range")),
            max_turns=_whole(limits.get("max_turns", taskset.get("max_turns"))),
            timeout_s=_positive(_first((limits,), "timeout_seconds", "timeout_s", "max_time_s")),
            rubrics=_criteria((info, instance, taskset)),
            capabilities=_capabilities(instance) or _capabilities(info),
        )

    def ranges(self, split: str | None) -> list[tuple[int, int]]:
        """Seeds that may be asked of a split (None: of any, since none is named); empty where unknown."""
        if split is not None and split in self.seed_ranges:
            return [self.seed_ranges[split]]
        if split is None and self.seed_ranges:
            return list(self.seed_ranges.values())
        default = self.default_split or (self.splits[0] if self.splits else None)
        is_default = split is None or default is None or split == default
        return [self.seed_range] if self.seed_range is not None and is_default else []


def unsuitable(facts: TaskFacts, *, split: str | None, seeds: Iterable[int] = ()) -> list[str]:
    """Why a job cannot ask the app for this split and these seeds: one sentence per problem, naming what is valid.

    >>> unsuitable(TaskFacts(seed_range=(0, 499)), split=None, seeds=[3, 900])
    ["seed 900 is outside the task app's seed_range [0, 499]"]
    """
    if split is not None and facts.splits and split not in facts.splits:
        return [f"split {split!r} is not one of the task app's: {', '.join(facts.splits)}"]
    ranges = facts.ranges(split)
    if not ranges:
        return []
    outside = [seed for seed in seeds if not any(low <= seed <= high for low, high in ranges)]
    if not outside:
        return []
    of = f" of split {split!r}" if split in facts.seed_ranges else ""
    valid = " and ".join(f"[{low}, {high}]" for low, high in ranges)
    if len(outside) == 1:
        return [f"seed {outside[0]} is outside the task app's seed_range{of} {valid}"]
    return [
        f"seed {outside[0]} and {len(outside) - 1} more are outside the task app's seed_range{of} {valid}"
    ]


def likely_cause(status: int, text: str) -> str | None:
    """What most likely lies behind an answer other than 200, on one line; None where the error says it all."""
    if is_key_refusal(status, text):
        expected = _expected_prefix(text)
        begins = f"; it expects a key that begins with {expected!r}" if expected else ""
        return f"the task app runs with another ENVIRONMENT_API_KEY{begins}"
    if status == 503 and "ENVIRONMENT_API_KEY".lower() in text.lower():
        return "the task app was started without ENVIRONMENT_API_KEY"
    if status == 404:
        return "another service answers at this address, or the address has a path too many"
    if 300 <= status < 400:
        return "the address redirects; give the one that it redirects to"
    return "the task app itself failed; its log says why" if status >= 500 else None


def _expected_prefix(text: str) -> str | None:
    """At most 4 characters of the key that the app expects, where its refusal shows a prefix."""
    try:
        body = json.loads(text)
        shown = body.get("expected_api_key_prefix") or body["detail"]["error"]["allowed_first15"][0]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    return shown[: min(4, len(shown) // 2)] if isinstance(shown, str) and len(shown) > 1 else None


MAX_ENTRIES, MAX_TEXT, MAX_CAPABILITIES = 200, 300, 4096
"""Bounds of what an app may make us keep and show."""


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _first(tables: Sequence[dict[str, Any]], *keys: str) -> Any:
    """The first value that one of the tables has under one of the keys."""
    found = (table[key] for table in tables for key in keys if table.get(key) is not None)
    return next(found, None)


def _text(value: Any) -> str | None:
    return str(value)[:MAX_TEXT] if isinstance(value, str | int | float) else None


def _names(value: Any) -> tuple[str, ...]:
    items = value if isinstance(value, list | dict) else ()
    return tuple(item[:MAX_TEXT] for item in list(items)[:MAX_ENTRIES] if isinstance(item, str))


def _counts(value: Any) -> dict[str, int]:
    items = list(_table(value).items())[:MAX_ENTRIES]
    return {str(key): found for key, raw in items if (found := _whole(raw)) is not None}


def _ranges(value: Any) -> dict[str, tuple[int, int]]:
    items = list(_table(value).items())[:MAX_ENTRIES]
    return {str(key): found for key, raw in items if (found := _seeds(raw)) is not None}


def _seeds(value: Any) -> tuple[int, int] | None:
    pair = _pair(value)
    return (int(pair[0]), int(pair[1])) if pair else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _positive(value: Any) -> float | None:
    return float(value) if _is_number(value) and value > 0 else None


def _criteria(tables: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """Criteria of the outcome and event rubrics, each once; older apps have one rubric without the two."""
    found: dict[str, None] = {}
    for table in tables:
        rubric = _table(table.get("rubric")) or _table(table.get("rubrics"))
        for part in (rubric, *(_table(rubric.get(key)) for key in ("outcome", "events"))):
            criteria = part.get("criteria")
            for item in criteria[:MAX_ENTRIES] if isinstance(criteria, list) else ():
                name, says = _text(_table(item).get("id")), _text(_table(item).get("description"))
                if line := ": ".join(text for text in (name, says) if text):
                    found[line] = None
    return tuple(found)[:MAX_ENTRIES]


def _capabilities(info: dict[str, Any]) -> dict[str, Any]:
    """`capabilities` of older apps, else what newer ones say of inference; left out where it is large."""
    table = _table(info.get("capabilities")) or _table(info.get("inference"))
    kept = {key: value for key, value in table.items() if value is not None}
    try:
        return kept if len(json.dumps(kept, allow_nan=False)) <= MAX_CAPABILITIES else {}
    except (ValueError, RecursionError):
        return {}


def _pair(value: Any) -> tuple[float, float] | None:
    if not isinstance(value, list | tuple) or len(value) != 2:
        return None
    low, high = value
    return (low, high) if _is_number(low) and _is_number(high) and low <= high else None


def _is_number(value: Any) -> bool:
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an integer that no float can hold
        return False
