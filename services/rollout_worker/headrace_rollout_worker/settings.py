"""Settings of a worker process."""

from __future__ import annotations

from pydantic import Field

from headrace.settings import Settings


class WorkerSettings(Settings):
    concurrency: int = Field(default=64, alias="HEADRACE_WORKER_CONCURRENCY", ge=1, le=512)
    """Rollouts that this process plays at once, one thread each. More cores need more processes."""
