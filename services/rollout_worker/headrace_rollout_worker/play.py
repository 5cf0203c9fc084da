"""Play one order: lease, attempt, push. Knows no Celery.

Every way out is one of: a pushed trajectory, a record of what failed, or nothing at all because the
order is not wanted (any more). Delivering an order twice, or again after a kill, is harmless.
"""

from __future__ import annotations

import time

import redis
from pydantic_core import PydanticSerializationError
from structlog.stdlib import BoundLogger

from headrace import log
from headrace.contracts.rollout import RolloutOrder
from headrace.contracts.trajectory import Outcome, Rewards, Trajectory
from headrace.queue import names, streams
from headrace.queue.leases import Lease
from headrace_rollout_worker.attempt import AttemptRun, Tools, look_up
from headrace_rollout_worker.watch import Dropped, WorkerStops

LEASE_S = 15.0
PUSH_S = 60.0
"""How long a finished rollout is kept while Redis is away."""


def play(order: RolloutOrder, tools: Tools) -> streams.Verdict | None:
    """Play `order` and push what came of it; None when there was nothing to do.

    Raises WorkerStops when the order has to go back to its queue.
    """
    logger = log.get(__name__).bind(job_id=order.job_id, rollout_id=order.rollout_id, attempt=order.attempt)
    if unwanted := why_unwanted(tools.client, order):
        logger.info("rollout.skipped", reason=unwanted)
        return None
    label = names.attempt_label(order.timeline, order.attempt)
    lease = Lease(tools.client, names.rollout_lease(order.job_id, order.rollout_id), LEASE_S, label)
    if not _acquire(lease, order, tools):
        logger.info("rollout.skipped", reason="another worker plays it")
        return None
    with lease:
        # The other holder may have finished between the first look and the lease.
        if unwanted := why_unwanted(tools.client, order):
            logger.info("rollout.skipped", reason=unwanted)
            return None
        try:
            trajectory = AttemptRun(order, tools, lease).run()
        except Dropped as dropped:
            logger.warning("rollout.dropped", reason=str(dropped))
            return None
        return _push(tools, trajectory, logger)


def why_unwanted(client: redis.Redis, order: RolloutOrder) -> str | None:
    """Why an order is a no-op: cancelled, of an older timeline, replaced, or finished before."""
    cancelled, timeline, attempt, seen = look_up(client, order)
    if cancelled:
        return "the job was cancelled"
    if timeline != order.timeline:
        return f"the job is on timeline {timeline}, the order is of {order.timeline}"
    if attempt != order.attempt:
        return f"attempt {order.attempt} is not out (out is {attempt})"
    return "an attempt was accepted before" if seen else None


def _acquire(lease: Lease, order: RolloutOrder, tools: Tools) -> bool:
    """Take the rollout's lease; False when a living worker plays this attempt or a later one.

    A living holder renews every third of the lease's time. One that does not was killed, and is waited
    out; one that plays an earlier attempt stops by itself, and is waited for.
    """
    deadline = time.monotonic() + 2 * LEASE_S
    left_ms = 0
    while not lease.try_acquire():
        if tools.stopping.is_set():
            raise WorkerStops("the worker stops")
        label, before_ms, left_ms = lease.holder(), left_ms, lease.left_ms()
        has_renewed = 0 < before_ms < left_ms - 100
        if has_renewed and not _is_earlier(label, order):
            return False
        if time.monotonic() > deadline:
            return False
        time.sleep(0.5)
    return True


def _is_earlier(label: str | None, order: RolloutOrder) -> bool:
    """Whether a lease's label names an attempt that came before the order's."""
    timeline, _, attempt = (label or "0.0").partition(".")
    if not (timeline.isdigit() and attempt.isdigit()):
        return False
    return (int(timeline), int(attempt)) < (order.timeline, order.attempt)


def _push(tools: Tools, trajectory: Trajectory, logger: BoundLogger) -> streams.Verdict:
    """Push, again and again while Redis is away (the call is idempotent by session)."""
    deadline = time.monotonic() + PUSH_S
    while True:
        try:
            verdict = streams.push(tools.client, tools.artifacts, trajectory)
            break
        except PydanticSerializationError as error:
            trajectory = _without_content(trajectory, f"the task app's answer cannot be kept: {error}"[:300])
        except (redis.ConnectionError, redis.TimeoutError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
    logger.info(
        "rollout.pushed", verdict=str(verdict), outcome=str(trajectory.outcome), reason=trajectory.reason,
        seconds=round(trajectory.finished_at - trajectory.started_at, 3),
    )  # fmt: skip
    return verdict


def _without_content(trajectory: Trajectory, reason: str) -> Trajectory:
    """The record of an attempt whose answer JSON cannot hold (nested hundreds deep)."""
    return trajectory.model_copy(
        update={
            "outcome": Outcome.INFRA_FAILED, "reason": reason, "boundary": "task_app",
            "rewards": Rewards(), "ops": (), "final_observation": None, "details": {},
        }
    )  # fmt: skip
