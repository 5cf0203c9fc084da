"""Rollout workers as real processes, and the trainer's side of a job in Redis."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis
from tests.fakes.policy import TOKEN

from headrace import ids
from headrace.artifacts.files import ArtifactStore
from headrace.contracts.policy import Sampling
from headrace.contracts.rollout import RolloutOrder
from headrace.queue import names
from headrace.queue.alive import alive_key
from headrace.queue.connect import connect
from headrace.queue.secrets import seal
from headrace.queue.send import send_order
from headrace.queue.streams import TRAINER_GROUP, Entry, StreamReader, open_stream

SECRET_KEY = "ab" * 32
POOL = "test-pool"


def until(is_so: Callable[[], Any], seconds: float = 30.0) -> Any:
    """Wait for a truthy value; fails the test when none comes."""
    deadline = time.monotonic() + seconds
    while not (value := is_so()):
        assert time.monotonic() < deadline, f"waited {seconds} s in vain"
        time.sleep(0.02)
    return value


@dataclass
class Job:
    """What a trainer keeps in Redis of one job, and its eyes on the stream."""

    url: str
    home: Path
    job_id: str = "job_1"
    timeline: int = 1

    def __post_init__(self) -> None:
        self.client: redis.Redis = connect(self.url)
        self.artifacts = ArtifactStore(self.home / "artifacts")
        self.client.set(names.timeline(self.job_id), self.timeline)
        open_stream(self.client, "local", self.job_id)
        self.reader = StreamReader(self.client, self.artifacts, self.job_id, TRAINER_GROUP)
        self.entries: list[Entry] = []

    def share_keys(self, *keys: str) -> None:
        for key in keys:
            self.client.rpush(names.environment_keys(self.job_id), seal(SECRET_KEY, [key]))

    def make_order(self, policy_url: str, task_url: str, member: int = 0, **changes: Any) -> RolloutOrder:
        fields: dict[str, Any] = {
            "org_id": "local", "job_id": self.job_id, "attempt": 1, "timeline": self.timeline,
            "rollout_id": ids.rollout_id(self.job_id, ids.TRAIN, 0, 0, member),
            "purpose": ids.TRAIN, "iteration": 0, "group": 0, "member": member, "seed": 3, "mode": "rl",
            "serve_id": "serve_1", "task_url": task_url, "policy_url": policy_url,
            "policy_public_url": policy_url, "env_name": "sums", "policy_name": "policy",
            "ops": ("agent", "env") * 2, "sampling": Sampling(), "model": "policy", "deadline_s": 20.0,
        }  # fmt: skip
        return RolloutOrder(**(fields | changes))

    def mark_out(self, order: RolloutOrder) -> None:
        self.client.hset(names.orders_out(self.job_id), order.rollout_id, str(order.attempt))

    def send(self, order: RolloutOrder) -> None:
        self.mark_out(order)
        send_order(self.url, POOL, order)

    def wait_for(self, n: int, seconds: float = 30.0) -> list[Entry]:
        """The first `n` entries of the stream."""

        def has_come() -> bool:
            self.entries += self.reader.read_new(block_s=0.1)
            return len(self.entries) >= n

        until(has_come, seconds)
        return self.entries

    def queue_length(self) -> int:
        return int(self.client.llen(names.rollout_queue(POOL)))  # type: ignore[arg-type]


def start_worker(url: str, home: Path, concurrency: int = 8) -> subprocess.Popen[bytes]:
    """A worker process; its log is `home/worker.log`."""
    environment = os.environ | {
        "REDIS_URL": url,
        "HEADRACE_HOME": str(home),
        "HEADRACE_POOL": POOL,
        "HEADRACE_SECRET_KEY": SECRET_KEY,
        "HEADRACE_WORKER_TOKEN": TOKEN,
        "HEADRACE_WORKER_CONCURRENCY": str(concurrency),
    }
    with (home / "worker.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "headrace_rollout_worker"], env=environment, stdout=log, stderr=log
        )


@contextmanager
def working(url: str, home: Path, concurrency: int = 8) -> Iterator[subprocess.Popen[bytes]]:
    """A ready worker, gone when the block ends."""
    process, client = start_worker(url, home, concurrency), connect(url)
    try:
        until(lambda: list(client.scan_iter(match=alive_key(f"worker:*:{process.pid}"))))
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        client.close()
