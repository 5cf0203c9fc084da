"""The one place that enqueues Celery tasks: typed in, JSON out, by task name only."""

from __future__ import annotations

from functools import cache

import redis
from celery import Celery
from kombu.exceptions import OperationalError

from headrace.contracts.rollout import RolloutOrder
from headrace.queue import names

VISIBILITY_TIMEOUT_S = 7200
"""Must exceed twice the longest rollout: Redis delivers a task again once it has passed."""


def celery_app(redis_url: str, name: str = "headrace") -> Celery:
    """The Celery app with the settings that producers and workers must share."""
    app = Celery(name, broker=redis_url)
    app.conf.update(
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        worker_prefetch_multiplier=1,
        task_ignore_result=True,
        task_serializer="json",
        accept_content=["json"],
        broker_connection_retry_on_startup=True,
        broker_transport_options={
            "visibility_timeout": VISIBILITY_TIMEOUT_S,
            "unacked_restore_interval": 5,
            "unacked_restore_throttle": 1,
        },
    )
    return app


@cache
def _producer(redis_url: str) -> Celery:
    app = celery_app(redis_url, "headrace-producer")
    # Without these a Redis that accepts but does not answer would hold the sender for ever.
    app.conf.broker_transport_options |= {"socket_timeout": 30, "socket_connect_timeout": 5}
    return app


def send_order(redis_url: str, pool: str, order: RolloutOrder) -> None:
    """Enqueue one rollout on the pool's queue; raises redis.ConnectionError when Redis does not take it."""
    try:
        _producer(redis_url).send_task(
            names.ROLLOUT_TASK, args=[order.model_dump(mode="json")], queue=names.rollout_queue(pool)
        )
    except OperationalError as error:  # Celery's own name for it, which no caller should have to know
        raise redis.ConnectionError(f"Redis did not take an order: {error}") from error
