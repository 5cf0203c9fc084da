"""Rows of the rewards table, from the API's rewards by iteration."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

Json = dict[str, Any]

PURPOSES = {"train": "Training", "eval": "Evaluation"}
MAX_EVENTS = 8
"""Events shown in a row; the export has all."""


@dataclass(frozen=True)
class EventView:
    key: str
    frequency: float
    mean: float


@dataclass(frozen=True)
class RewardRow:
    iteration: int
    n: int
    reward_mean: float
    return_mean: float
    std: float
    min: float | None
    max: float | None
    events: tuple[EventView, ...]
    n_more_events: int


def reward_rows(rewards: Iterable[Json]) -> list[RewardRow]:
    """In the API's order, each with its most frequent events first."""
    return [_row(one) for one in rewards]


def _row(one: Json) -> RewardRow:
    events = [
        EventView(key, rate["frequency"], rate["mean"]) for key, rate in (one.get("events") or {}).items()
    ]
    events.sort(key=lambda event: (-event.frequency, event.key))
    return RewardRow(
        iteration=one["iteration"],
        n=one["n"],
        reward_mean=one["reward_mean"],
        return_mean=one["return_mean"],
        std=one["std"],
        min=one.get("min"),
        max=one.get("max"),
        events=tuple(events[:MAX_EVENTS]),
        n_more_events=max(0, len(events) - MAX_EVENTS),
    )


def next_link(job_id: str, page: Json) -> str | None:
    """The address of the page behind this one, if there is one.

    >>> next_link("job_1", {"rewards": [{"iteration": 9}], "has_more": True, "purpose": "train"})
    '/jobs/job_1/rewards?purpose=train&after_step=9'
    """
    if not page.get("has_more") or not page["rewards"]:
        return None
    query = {"purpose": page["purpose"], "after_step": page["rewards"][-1]["iteration"]}
    return f"/jobs/{job_id}/rewards?{urlencode(query)}"
