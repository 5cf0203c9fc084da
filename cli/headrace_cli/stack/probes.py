"""How each kind of process shows that it is ready. A probe answers None, or a sentence that says why not."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Protocol

PROBE_TIMEOUT_S = 3.0


class Probe(Protocol):
    """Asked from a worker thread; must answer within a few seconds."""

    def __call__(self, pid: int) -> str | None: ...


@dataclass(frozen=True)
class HttpProbe:
    """Ready when the address answers with a status below 400."""

    url: str

    def __call__(self, pid: int) -> str | None:
        import httpx

        try:
            response = httpx.get(self.url, timeout=PROBE_TIMEOUT_S, trust_env=False)
        except httpx.TimeoutException:
            return f"no answer from {self.url} within {PROBE_TIMEOUT_S:g} s"
        except httpx.HTTPError:
            return f"nothing listens at {self.url} yet"
        if response.status_code < 400:
            return None
        return _sentence(response) or f"{self.url} answers {response.status_code}"


@dataclass(frozen=True)
class HeartbeatProbe:
    """Ready while the process renews its key in Redis; a key of another process does not count."""

    redis_url: str
    process: str

    def __call__(self, pid: int) -> str | None:
        import redis

        from headrace.queue.alive import alive_key

        try:
            with redis.Redis.from_url(
                self.redis_url, socket_timeout=PROBE_TIMEOUT_S, socket_connect_timeout=PROBE_TIMEOUT_S
            ) as client:
                beat = client.get(alive_key(self.process))
        except redis.RedisError as error:
            return f"Redis does not answer: {error}"
        if not isinstance(beat, bytes):
            return "no heartbeat yet"
        return None if json.loads(beat).get("pid") == pid else "no heartbeat of this process yet"


@dataclass(frozen=True)
class RedisProbe:
    """Ready when Redis answers PING, which it does not while it loads its append-only file."""

    redis_url: str

    def __call__(self, pid: int) -> str | None:
        import redis

        try:
            with redis.Redis.from_url(
                self.redis_url, socket_timeout=PROBE_TIMEOUT_S, socket_connect_timeout=PROBE_TIMEOUT_S
            ) as client:
                client.ping()
        except redis.RedisError as error:
            return str(error)
        return None


def _sentence(response: object) -> str | None:
    """The reason in a 503's body, in the shapes that our services use."""
    try:
        body = response.json()  # type: ignore[attr-defined]
    except ValueError:
        return None
    if not isinstance(body, dict):
        return None
    error = body.get("error")
    reason = error.get("message") if isinstance(error, dict) else body.get("detail") or body.get("reason")
    return reason if isinstance(reason, str) else None
