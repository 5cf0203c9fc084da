"""Leases: timed ownership that the owner renews and anyone may take once it has expired."""

from __future__ import annotations

import secrets
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

import redis

from headrace.queue.scripts import source


class Lease:
    """A lease on one key, renewed by a daemon thread each third of its time until released.

    `is_lost` turns true when a renewal found another owner, or Redis did not answer for the whole
    time of the lease; whoever holds it must stop then.
    """

    def __init__(self, client: redis.Redis, key: str, ttl_s: float, label: str = "") -> None:
        self._client, self._key, self._ttl_ms = client, key, int(ttl_s * 1000)
        self.token = f"{label}/{secrets.token_hex(8)}"
        self._stop = threading.Event()
        self._lost = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def is_lost(self) -> bool:
        return self._lost.is_set()

    def try_acquire(self) -> bool:
        """Take the lease if it is free, and start to renew it."""
        if not self._client.set(self._key, self.token, nx=True, px=self._ttl_ms):
            return False
        self._thread = threading.Thread(
            target=self._renew_until_released, name=f"lease {self._key}", daemon=True
        )
        self._thread.start()
        return True

    def holder(self) -> str | None:
        """Label of the present owner, whoever that is; None when the lease is free."""
        token = self._client.get(self._key)
        return token.decode().rsplit("/", 1)[0] if token else None  # type: ignore[union-attr]

    def left_ms(self) -> int:
        """Milliseconds until the lease expires unless its owner renews it; 0 when it is free."""
        return max(0, int(self._client.pttl(self._key)))  # type: ignore[arg-type]

    def release(self) -> None:
        """Give it up; where Redis does not answer, the lease expires by itself."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        with suppress(redis.RedisError):
            self._client.eval(source("lease_release"), 1, self._key, self.token)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _renew_until_released(self) -> None:
        n_missed = 0
        while not self._stop.wait(self._ttl_ms / 3000):
            try:
                renewed = self._client.eval(source("lease_renew"), 1, self._key, self.token, self._ttl_ms)
                n_missed = 0
            except redis.RedisError:
                n_missed += 1
                renewed = n_missed < 3
            if not renewed:
                self._lost.set()
                return
