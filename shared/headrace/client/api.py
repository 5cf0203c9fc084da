"""All routes of the API on one connection."""

from __future__ import annotations

from headrace.client.data import DataRoutes
from headrace.client.jobs import JobRoutes


class ApiClient(JobRoutes, DataRoutes):
    """Calls one Headrace API with one key, and returns its JSON as it came.

    >>> with ApiClient("http://127.0.0.1:8760", "hr_...") as api:  # doctest: +SKIP
    ...     job = api.create_rl_job({"data": {"config": {...}}, "strict": True})
    """
