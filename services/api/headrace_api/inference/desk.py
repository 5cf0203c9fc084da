"""Where an inference call waits for its model and is let in. Async: a waiting call holds no thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import httpx
from redis.asyncio import Redis

from headrace import ids
from headrace.contracts.job import JobStatus
from headrace.contracts.policy import Sampling, SessionOpen
from headrace.errors import NotFound, Unavailable
from headrace.queue import names
from headrace.queue.inference import FAILURE_S, IN_FLIGHT_S, WISH_S, Offer, Wish
from headrace.store.jobs import get_job
from headrace.store.models import ResolvedModel, UnknownModel, resolve_model
from headrace_api.deps import Backends
from headrace_api.inference.admitted import CALL_S, Admitted, Chores

LOOK_S = 0.15
HOLDER_LOOK_S = 1.0
"""Between two looks at which job holds the engine."""
BUSY_RETRY_S = 15
LOADING_RETRY_S = 5
OK = (200, 201)
NOT_NOW = (409, 503)
"""What the gateway answers where the engine changes hands or starts anew; it is asked again."""


class ClientGone(Exception):
    """Nobody waits for the answer any more."""


class Desk:
    """Lets calls in, one at a time, for the pool and slot of this API."""

    def __init__(self, backends: Backends, redis: Redis, http: httpx.AsyncClient) -> None:
        self._backends, self._redis, self._http = backends, redis, http
        settings = backends.settings
        self._place = settings.pool, settings.slot
        self._job = names.inference_job(settings.pool)
        self.chores = Chores()

    async def find(self, org_id: str, name: str) -> ResolvedModel:
        """The caller's model; raises NotFound for one that does not exist or is not theirs."""
        return await asyncio.to_thread(self._find, org_id, name)

    def _find(self, org_id: str, name: str) -> ResolvedModel:
        try:
            with self._backends.store.read() as session:
                return resolve_model(session, org_id, name, self._backends.settings)
        except UnknownModel as error:
            raise NotFound(error.message) from error

    async def admit(
        self, org_id: str, model: ResolvedModel, sampling: Sampling, is_gone: Callable[[], Awaitable[bool]]
    ) -> Admitted:
        """Wait until the engine serves the model, bounded, and open a session there.

        Raises Unavailable with `retry_after_s` while a job holds or wants the engine, when the model
        could not be loaded, and when the wait is over; ClientGone when the caller has left.
        """
        call_id, asked_at = uuid4().hex, time.time()
        deadline = time.monotonic() + self._backends.settings.inference_wait_s
        try:
            while True:
                wish = _wish(call_id, model, asked_at)
                await self._wish_for(wish)
                offer = await self._offer()
                if offer is not None and _answers(offer, wish):
                    admitted = await self._enter(call_id, offer, sampling)
                    if admitted is not None:
                        return admitted
                else:
                    await self._refuse_when_busy(org_id, offer)
                    await self._refuse_when_failed(wish)
                if time.monotonic() > deadline:
                    raise self._too_long(model, offer)
                if await is_gone():
                    raise ClientGone
                await asyncio.sleep(LOOK_S)
        finally:
            await self._redis.hdel(names.inference_wishes(*self._place), call_id)  # type: ignore[misc]

    async def _wish_for(self, wish: Wish) -> None:
        key = names.inference_wishes(*self._place)
        async with self._redis.pipeline(transaction=False) as pipe:
            pipe.hset(key, wish.call_id, wish.model_dump_json())
            pipe.expire(key, 60)
            await pipe.execute()

    async def _offer(self) -> Offer | None:
        raw = await self._redis.get(names.inference_offer(*self._place))
        return Offer.model_validate_json(raw) if raw else None

    async def _enter(self, call_id: str, offer: Offer, sampling: Sampling) -> Admitted | None:
        """Begin under the offer; None when it has ended meanwhile, or the gateway cannot yet."""
        # First the mark, then a second look: an owner that closes its offer before the look is seen,
        # one that closes it after the look sees the mark.
        calls = names.inference_calls(*self._place)
        await self._redis.zadd(calls, {call_id: time.time() + IN_FLIGHT_S})
        session_id = None
        try:
            if await self._offer() == offer:
                session_id = await self._open_session(offer, sampling)
        finally:
            if session_id is None:
                await self._redis.zrem(calls, call_id)
        if session_id is None:
            return None
        await self._redis.set(names.inference_used(*self._place), time.time(), ex=86400)
        token = self._backends.settings.worker_token
        return Admitted(self._redis, self._http, self.chores, calls, call_id, session_id, token)

    async def _open_session(self, offer: Offer, sampling: Sampling) -> str | None:
        opened = SessionOpen(
            session_id=ids.new_session_id(),
            job_id=self._job,
            rollout_id=self._job,  # the same for all, so that a caller's seed draws the same again
            attempt=1,
            timeline=offer.timeline,
            serve_id=offer.serve_id,
            mode="eval",
            sampling=sampling,
            ttl_s=CALL_S,
        )
        headers = {"Authorization": f"Bearer {self._backends.settings.worker_token}"}
        try:
            reply = await self._http.post("/sessions", content=opened.model_dump_json(), headers=headers)
        except httpx.TransportError:
            return None
        if reply.status_code in OK:
            return opened.session_id
        if reply.status_code in NOT_NOW:
            return None
        raise Unavailable(
            f"the policy gateway refuses the API's session with {reply.status_code}; give both the same "
            "HEADRACE_WORKER_TOKEN",
            retry_after_s=BUSY_RETRY_S,
        )

    async def _refuse_when_busy(self, org_id: str, offer: Offer | None) -> None:
        """Raise Unavailable when a job of the pool holds the engine or waits for it."""
        if offer is not None and offer.gives_way_to is not None:
            waiting = await asyncio.to_thread(self._shown, org_id, offer.gives_way_to)
            if waiting is not None:
                raise Unavailable(
                    f"{waiting} waits for the engine; ask again later", retry_after_s=BUSY_RETRY_S
                )
        holder = await self._holder()
        if holder is None or holder == self._job:
            return
        busy = await asyncio.to_thread(self._shown, org_id, holder)
        if busy is not None:
            raise Unavailable(f"{busy} holds the engine; ask again later", retry_after_s=BUSY_RETRY_S)
        await asyncio.sleep(HOLDER_LOOK_S)  # it has ended and lets go

    async def _holder(self) -> str | None:
        token = await self._redis.get(names.slot_owner(*self._place))
        return token.decode().rsplit("/", 1)[0] if token else None  # type: ignore[union-attr]

    def _shown(self, org_id: str, job_id: str) -> str | None:
        """The job as the caller may see it; None when it has ended."""
        with self._backends.store.read() as session:
            try:
                job = get_job(session, None, job_id)
            except NotFound:
                return None
            if JobStatus(job.status).is_terminal:
                return None
            return f"job {job_id}" if job.org_id == org_id else "a job of another organisation"

    async def _refuse_when_failed(self, wish: Wish) -> None:
        reason = await self._redis.get(names.inference_failure(*self._place, wish.key))
        if reason:
            why = reason.decode()  # type: ignore[union-attr]
            raise Unavailable(f"model {wish.name!r} could not be served: {why}", retry_after_s=FAILURE_S)

    def _too_long(self, model: ResolvedModel, offer: Offer | None) -> Unavailable:
        waited = f"{self._backends.settings.inference_wait_s:g} s"
        if offer is None:
            sentence = (
                f"nothing served model {model.name!r} within {waited}: the evaluator of pool {self._place[0]} "
                "does not answer; see `headrace status`"
            )
        elif offer.key == _wish("", model, 0.0).key:
            sentence = f"the engine still loads model {model.name!r} after {waited}; ask again"
        else:
            sentence = (
                f"the engine answered for another model for {waited}, not for {model.name!r}; ask again"
            )
        return Unavailable(sentence, retry_after_s=LOADING_RETRY_S)


def _wish(call_id: str, model: ResolvedModel, asked_at: float) -> Wish:
    return Wish(
        call_id=call_id,
        name=model.name,
        folder=str(model.path),
        engine_args=model.engine_args,
        asked_at=asked_at,
        alive_until=time.time() + WISH_S,
    )


def _answers(offer: Offer, wish: Wish) -> bool:
    return offer.is_open and offer.key == wish.key


@asynccontextmanager
async def opened_desk(backends: Backends) -> AsyncIterator[Desk]:
    """A desk with connections of its own, for as long as the block runs."""
    settings = backends.settings
    redis: Any = Redis.from_url(settings.redis_url, socket_timeout=5, socket_connect_timeout=5)
    timeout = httpx.Timeout(CALL_S + 30, connect=5)
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=settings.policy_url, timeout=timeout, limits=limits) as http:
        desk = Desk(backends, redis, http)
        yield desk
        await desk.chores.settle()
    await redis.aclose()
