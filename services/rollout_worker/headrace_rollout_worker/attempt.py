"""One attempt at a rollout: a session at the gateway, the episode at the task app, the join."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any

import redis

from headrace import ids
from headrace.artifacts.files import ArtifactStore
from headrace.contracts.rollout import RolloutOrder
from headrace.contracts.trajectory import Outcome, Trajectory
from headrace.errors import Unavailable
from headrace.queue import names
from headrace.queue.leases import Lease
from headrace.queue.secrets import unseal
from headrace_rollout_worker.gateway import Gateway, GatewayFailed
from headrace_rollout_worker.http import ClientPerThread
from headrace_rollout_worker.join import Attempt, Judgement, build_trajectory, judge
from headrace_rollout_worker.settings import WorkerSettings
from headrace_rollout_worker.task_app import (
    Manners,
    TaskAppClient,
    TaskAppFailed,
    inference_url,
    rollout_request,
)
from headrace_rollout_worker.watch import Cancelled, Dropped, Stopped, Watch, WorkerStops


@dataclass
class Tools:
    """What plays need and share within one worker process."""

    settings: WorkerSettings
    client: redis.Redis
    artifacts: ArtifactStore
    http: ClientPerThread = field(default_factory=ClientPerThread)
    manners: Manners = field(default_factory=Manners)
    stopping: threading.Event = field(default_factory=threading.Event)
    """Set when the process has to end soon; plays then give their orders back."""


def look_up(client: redis.Redis, order: RolloutOrder) -> tuple[bool, int | None, int | None, bool]:
    """(is the job cancelled, its timeline, attempt ordered, was an attempt accepted)."""
    pipe = client.pipeline(transaction=False)
    pipe.exists(names.cancelled(order.job_id))
    pipe.get(names.timeline(order.job_id))
    pipe.hget(names.orders_out(order.job_id), order.rollout_id)
    pipe.hexists(names.seen(order.job_id), order.rollout_id)
    cancelled, timeline, attempt, seen = pipe.execute()
    return bool(cancelled), _int(timeline), _int(attempt), bool(seen)


def _int(raw: bytes | None) -> int | None:
    return None if raw is None else int(raw)


class AttemptRun:
    """Plays one attempt; `run` gives its trajectory, whatever went wrong on the way."""

    def __init__(self, order: RolloutOrder, tools: Tools, lease: Lease) -> None:
        self._order, self._tools, self._lease = order, tools, lease
        self._session_id, self._started_at = ids.new_session_id(), time.time()
        self._gateway = Gateway(tools.http.get(), order, tools.settings.worker_token)
        self._watch = Watch(order.deadline_s, self._look)
        self._facts: dict[str, Any] = {}

    def run(self) -> Trajectory:
        """Raises Dropped or WorkerStops, after the session was ended, when nothing is to be said."""
        try:
            path = self._gateway.open_session(self._session_id, self._watch)
        except GatewayFailed as error:
            return self._trajectory(Judgement(Outcome.INFRA_FAILED, str(error), "policy"))
        except Cancelled as cancelled:
            return self._trajectory(Judgement(Outcome.CANCELLED, str(cancelled)))
        stopped: Stopped | None = None
        judgement: Judgement | None = None
        try:
            judgement = self._play_episode(path)
        except (Dropped, WorkerStops) as error:
            stopped = error
        try:
            self._facts["calls"] = self._gateway.end_session(self._session_id).calls
        except GatewayFailed as error:
            judgement = judgement or Judgement(Outcome.INFRA_FAILED, str(error), "policy")
        if stopped is not None:
            raise stopped
        return self._trajectory(judgement)

    def _play_episode(self, path: str) -> Judgement | None:
        """Fill `answer` or `failure`; a judgement only where it needs no look at the calls."""
        order = self._order
        try:
            app = TaskAppClient(self._tools.http.get(), order.task_url, self._environment_keys())
            manner = self._tools.manners.get(order.task_url, app, order.seed)
            self._facts["task_app"] = manner.identity
            url = inference_url(order, path, self._session_id, manner)
            self._facts["answer"] = app.rollout(rollout_request(order, self._session_id, url), self._watch)
        except TaskAppFailed as error:
            self._facts["failure"] = str(error)
        except Unavailable as error:
            return Judgement(Outcome.INFRA_FAILED, str(error), "worker")
        except Cancelled as cancelled:
            return Judgement(Outcome.CANCELLED, str(cancelled))
        return None

    def _environment_keys(self) -> list[str]:
        """The org's environment keys, opened here and kept nowhere; raises Unavailable."""
        sealed: list[bytes] = self._tools.client.lrange(names.environment_keys(self._order.job_id), 0, -1)  # type: ignore[assignment]
        secret = self._tools.settings.secret_key
        return [key for ciphertext in sealed for key in unseal(secret, ciphertext)]

    def _look(self) -> None:
        if self._tools.stopping.is_set():
            raise WorkerStops("the worker stops")
        if self._lease.is_lost:
            raise Dropped("the lease was lost")
        try:
            cancelled, timeline, attempt, _ = look_up(self._tools.client, self._order)
        except redis.RedisError:
            return  # where Redis stays away, the lease is lost and ends this
        if cancelled:
            raise Cancelled("the job was cancelled")
        if timeline != self._order.timeline:
            raise Cancelled("a newer timeline of the job has taken over")
        if attempt != self._order.attempt:
            raise Dropped(f"attempt {attempt} was ordered instead")

    def _trajectory(self, judgement: Judgement | None) -> Trajectory:
        attempt = Attempt(
            session_id=self._session_id,
            started_at=self._started_at,
            finished_at=time.time(),
            **self._facts,
        )
        return build_trajectory(self._order, attempt, judgement or judge(self._order, attempt))
