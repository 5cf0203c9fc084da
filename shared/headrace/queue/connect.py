"""One way to connect to Redis: bounded waits, and retries on a dropped connection."""

from __future__ import annotations

import redis
from redis.backoff import ExponentialWithJitterBackoff
from redis.exceptions import ConnectionError, TimeoutError
from redis.retry import Retry

MAX_CONNECTIONS = 2048
"""Opened as needed. A worker uses two threads per slot; redis-py's own limit of 100 fails the 101st."""


def connect(url: str, *, retries: int = 8, timeout_s: float = 30) -> redis.Redis:
    """A client whose replies are bytes. It reconnects for about 15 s before it gives up.

    Who must answer a person soon asks for fewer `retries` and a shorter `timeout_s`.
    """
    return redis.Redis.from_url(
        url,
        socket_timeout=timeout_s,
        socket_connect_timeout=5,
        socket_keepalive=True,
        health_check_interval=30,
        max_connections=MAX_CONNECTIONS,
        retry=Retry(ExponentialWithJitterBackoff(base=0.1, cap=3), retries=retries),
        retry_on_error=[ConnectionError, TimeoutError],
    )
