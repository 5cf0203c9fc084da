"""A call that was let in: forwarded to the gateway, kept alive there, and forgotten behind it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import httpx
from redis.asyncio import Redis
from redis.exceptions import RedisError

from headrace import log
from headrace.errors import Unavailable
from headrace.queue import names
from headrace.queue.inference import IN_FLIGHT_S

CALL_S = 600.0
"""A call, with all that is kept of it, is forgotten this long after its beginning, whatever happens."""
END_S = 10.0

SETTLE_S = 2.0
"""An API that stops gives the ends of its calls so long; what is left of them expires."""

logger = log.get(__name__)


class Chores:
    """Ends of calls that still run; a task that nobody holds may be collected."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settle(self) -> None:
        """Wait, bounded, until all have ended; to be called while their connections are still open."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=SETTLE_S)


class Admitted:
    """One call and its session at the gateway. `end` has to be called."""

    def __init__(
        self,
        redis: Redis,
        http: httpx.AsyncClient,
        chores: Chores,
        calls: str,
        call_id: str,
        session_id: str,
        token: str,
    ) -> None:
        self._redis, self._http, self._chores = redis, http, chores
        self._calls, self._call_id = calls, call_id
        self._session_id, self._token = session_id, token
        self._beat = asyncio.create_task(self._stay_in_flight())

    async def ask(self, body: dict[str, Any]) -> httpx.Response:
        """The gateway's answer, its body not read yet; raises Unavailable when the gateway is gone."""
        request = self._http.build_request(
            "POST", f"/rollout/{self._session_id}/v1/chat/completions", json=body
        )
        try:
            return await self._http.send(request, stream=True)
        except httpx.TransportError as error:
            raise _away(error) from error

    async def read(self, answer: httpx.Response) -> bytes:
        """The whole body of an answer."""
        try:
            return await answer.aread()
        except httpx.TransportError as error:
            raise _away(error) from error

    def end(self) -> None:
        """Stop what still runs and forget the session; goes on by itself and raises nothing."""
        self._beat.cancel()
        self._chores.start(self._forget())

    async def _stay_in_flight(self) -> None:
        ends = time.monotonic() + CALL_S
        while time.monotonic() < ends:
            await asyncio.sleep(IN_FLIGHT_S / 3)
            with suppress(RedisError):  # the next beat may reach it in time
                await self._redis.zadd(self._calls, {self._call_id: time.time() + IN_FLIGHT_S})

    async def _forget(self) -> None:
        """What fails here expires by itself."""
        session_id, headers = self._session_id, {"Authorization": f"Bearer {self._token}"}
        with suppress(httpx.HTTPError):
            await self._http.post(f"/sessions/{session_id}/end", headers=headers, timeout=END_S)
        try:
            await self._redis.delete(names.session(session_id), names.session_calls(session_id))
            await self._redis.zrem(self._calls, self._call_id)
        except RedisError as error:
            logger.warning("inference.not_forgotten", error=str(error))


def _away(error: httpx.TransportError) -> Unavailable:
    return Unavailable(
        f"the policy gateway went away during the call ({type(error).__name__}); ask again", retry_after_s=5
    )
