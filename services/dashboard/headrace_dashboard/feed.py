"""What the dashboard knows of one watched job: polled from the API, kept while somebody looks.

Blocking code for a worker thread; `live` decides when it runs and who is told.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from headrace.client import ApiClient
from headrace_dashboard.series import Series

Json = dict[str, Any]

METRICS_PAGE = 20_000
EVENTS_PAGE = 500
EVENTS_KEPT = 500


class Feed:
    """A job's row, points and newest events. `revision` grows with each change that a viewer can see."""

    def __init__(self, api: ApiClient, job_id: str) -> None:
        self.api = api
        self.job_id = job_id
        self.job: Json = {}
        self.series = Series()
        self.events: deque[Json] = deque(maxlen=EVENTS_KEPT)
        self.last_seq = 0
        self.revision = 0
        self.is_complete = False
        """Every point that the API had has been read once."""

    def poll(self) -> None:
        """Read what is new. Raises HeadraceError where the API refuses or does not answer."""
        job = self.api.get_job(self.job_id)
        events_full = self._poll_events()
        metrics_full = self._poll_metrics()
        if job != self.job:
            self.job = job
            self.revision += 1
        if not self.is_complete and not events_full and not metrics_full:
            self.is_complete = True
            self.revision += 1

    def _poll_events(self) -> bool:
        events = self.api.events(self.job_id, since_seq=self.last_seq, limit=EVENTS_PAGE)
        for event in events:
            self.events.append(event)
            self.last_seq = max(self.last_seq, int(event["seq"]))
        self.revision += bool(events)
        return len(events) >= EVENTS_PAGE

    def _poll_metrics(self) -> bool:
        """Points from the newest known step on, since a step may get further names later.

        True while there may be more: a page may be short only because it ends between two steps.
        """
        newest = self.series.last_step
        points = self.api.metrics(self.job_id, after_step=newest - 1, limit=METRICS_PAGE)
        self.revision += self.series.add(points) > 0
        return self.series.last_step > newest

    def events_since(self, seq: int) -> list[Json]:
        return [event for event in list(self.events) if event["seq"] > seq]
