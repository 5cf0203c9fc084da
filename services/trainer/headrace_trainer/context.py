"""What every flow of the trainer and the evaluator works with. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass

import redis

from headrace.artifacts.files import ArtifactStore
from headrace.config.pools import Topology
from headrace.settings import Settings
from headrace.store.session import Store


@dataclass(frozen=True)
class Context:
    settings: Settings
    store: Store
    redis: redis.Redis
    artifacts: ArtifactStore
    topology: Topology
    """The pool's default; an owned job's context holds the job's own."""
