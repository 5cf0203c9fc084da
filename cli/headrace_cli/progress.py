"""What is known of a job while it is followed: its row, its metrics by name, its last events."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from headrace.client import ApiClient

Json = dict[str, Any]

PAGE = 5000
EVENTS_PAGE = 200
KEPT_EVENTS = 50
_HEADLINES = (
    ("reward.mean", "reward"),
    ("success.rate", "success"),
    ("eval.reward_mean", "reward"),
    ("eval.success", "success"),
    ("train.loss", "loss"),
    ("val.loss", "val_loss"),
)
"""Metric -> the word it has in a progress line."""
_UNITS = {"sft": "step", "eval": "episode"}
"""What a job's `iteration` counts, by its type."""


@dataclass
class Progress:
    """A followed job; `refresh` asks only for what came since the last time."""

    job: Json
    series: dict[str, dict[int, float]] = field(default_factory=dict)
    """Metric name -> step -> value."""
    events: list[Json] = field(default_factory=list)
    """The last events, oldest first."""
    _seq: int = 0
    _step: int = -1

    @property
    def job_id(self) -> str:
        return self.job["job_id"]

    @property
    def curve_name(self) -> str | None:
        """The metric that tells best how the job goes."""
        return next((name for name, _ in _HEADLINES if self.series.get(name)), None)

    def curve(self, name: str) -> list[float]:
        return [value for _, value in sorted(self.series.get(name, {}).items())]

    def latest(self) -> dict[str, float]:
        """The last value of each headline metric, by the word it is shown with."""
        found: dict[str, float] = {}
        for name, word in _HEADLINES:
            if (values := self.curve(name)) and word not in found:
                found[word] = values[-1]
        return found

    def refresh(self, api: ApiClient) -> list[Json]:
        """Ask the API; returns the new events."""
        self.job = api.get_job(self.job_id)
        fresh: list[Json] = []
        while page := api.events(self.job_id, since_seq=self._seq, limit=EVENTS_PAGE):
            fresh += page
            self._seq = page[-1]["seq"]
        self.events = (self.events + fresh)[-KEPT_EVENTS:]
        while points := api.metrics(self.job_id, after_step=self._step, limit=PAGE):
            for point in points:
                self.series.setdefault(point["name"], {})[point["step"]] = point["value"]
            last = points[-1]["step"]
            is_cut = len(points) >= PAGE and last - 1 > self._step
            self._step = last - 1 if is_cut else last  # the page may end within a step
        return fresh


def plain_line(progress: Progress, elapsed: str) -> str:
    """`[00:15] running iteration 3/40 reward=0.512`."""
    job = progress.job
    parts = [f"[{elapsed}] {job['status']}"]
    if job.get("iterations"):
        unit = _UNITS.get(job.get("type", ""), "iteration")
        parts.append(f"{unit} {job.get('iteration') or 0}/{job['iterations']}")
    parts += [f"{word}={value:.4g}" for word, value in progress.latest().items()]
    if why := job.get("paused_reason") or job.get("waiting_reason"):
        parts.append(f"({why})")
    return " ".join(parts)
