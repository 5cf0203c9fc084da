"""A job's events as one stream, however often the connection is cut."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from headrace.client.jobs import JobRoutes
from headrace.client.transport import Json
from headrace.contracts.job import JobStatus
from headrace.errors import Unavailable

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 10.0


def resumed(
    api: JobRoutes, job_id: str, since_seq: int = 0, on_cut: Callable[[Unavailable], None] = lambda _: None
) -> Iterator[Json]:
    """Yield each event behind `since_seq` once, in order, until the job has ended.

    A cut stream goes on behind the last event seen; `on_cut` is told first. Other refusals (an
    unknown job, a revoked key) are raised.
    """
    pause = FIRST_PAUSE_S
    while True:
        try:
            for event in api.follow_events(job_id, since_seq):
                since_seq, pause = event["seq"], FIRST_PAUSE_S
                yield event
            if JobStatus(api.get_job(job_id)["status"]).is_terminal:
                return
        except Unavailable as error:
            on_cut(error)
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_S)
