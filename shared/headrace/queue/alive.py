"""How a process without a port shows that it is ready: a key that it renews and that expires with it."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import redis

ALIVE_S = 15


def alive_key(process: str) -> str:
    return f"headrace:alive:{process}"


@contextmanager
def beating(client: redis.Redis, process: str) -> Iterator[None]:
    """Show `process` as ready for as long as the block runs.

    HEADRACE_PROCESS, set by a supervisor, wins: it tells several workers of one machine apart.
    """
    process = os.environ.get("HEADRACE_PROCESS") or process
    facts = json.dumps({"pid": os.getpid(), "since": time.time()})
    stop = threading.Event()

    def beat() -> None:
        while True:
            with suppress(redis.RedisError):  # the key expires by itself: that is what it says then
                client.set(alive_key(process), facts, ex=ALIVE_S)
            if stop.wait(ALIVE_S / 3):
                return

    thread = threading.Thread(target=beat, name=f"beat {process}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        with suppress(redis.RedisError):
            client.delete(alive_key(process))
