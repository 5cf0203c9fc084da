"""Last rewards of the jobs in a list, remembered while the job has not moved on."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from headrace.client import ApiClient
from headrace_dashboard.views.sparkline import Sparkline, sparkline

Json = dict[str, Any]

METRIC = {"rl": "reward.mean", "sft": "train.loss", "eval": "eval.reward_mean"}
_WINDOW = 500
"""Steps that a sparkline looks back."""
_MAX_KEPT = 2000


class Sparks:
    """A cache of sparklines by job and progress: a finished job is asked for once."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[Any, ...], Sparkline | None] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, api: ApiClient, jobs: Sequence[Json]) -> dict[str, Sparkline | None]:
        """Sparklines by job id; None for a job without a point."""
        return {job["job_id"]: self._one(api, job) for job in jobs}

    def _one(self, api: ApiClient, job: Json) -> Sparkline | None:
        iteration = job.get("iteration") or 0
        if job.get("status") == "queued" and not iteration:
            return None
        key = (job["job_id"], job.get("status"), iteration, job.get("updated_at"))
        with self._lock:
            if key in self._kept:
                return self._kept[key]
        name = METRIC.get(job.get("type") or "rl", "reward.mean")
        points = api.metrics(job["job_id"], after_step=max(-1, iteration - _WINDOW), name=name, limit=_WINDOW)
        found = sparkline([point["value"] for point in points if point["value"] is not None])
        with self._lock:
            self._kept[key] = found
            while len(self._kept) > _MAX_KEPT:
                self._kept.popitem(last=False)
        return found
