"""Sessions and their captured calls, in Redis; and the tokens of live sessions, in memory.

Redis is the truth: a gateway that starts anew reads a session back on its next call.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from redis.asyncio import Redis

from headrace.contracts.policy import Call, CapturedSession, SessionOpen
from headrace.errors import Conflict, Gone, NotFound
from headrace.queue import names
from headrace.render.options import PromptOptions
from headrace.render.splice import Answered
from headrace.render.template import Message, Tool
from headrace_policy.in_flight import CallTask
from headrace_policy.routing import SessionFacts

_OPENED, _STATE, _ENDED, _MARK = "open", "state", b"ended", "untrainable:"


@dataclass
class LiveSession:
    """A session with the exact tokens of its answered calls."""

    opened: SessionOpen
    answered: dict[int, Answered] = field(default_factory=dict)
    next_index: int = 0
    asked: dict[bytes, CallTask] = field(default_factory=dict)
    """Digest of a request -> its latest call, to recognise a retry."""
    expires_at: float = 0.0

    def take_index(self) -> int:
        index, self.next_index = self.next_index, self.next_index + 1
        return index

    def add(
        self,
        call: Call,
        messages: Sequence[Message],
        tools: Sequence[Tool] | None,
        token_ids: array,
        stop_id: int | None,
    ) -> None:
        assert call.reply is not None
        options = PromptOptions(call.template_variables)
        answered = Answered(call.index, messages, call.reply, tools, token_ids, stop_id, options)
        self.answered[call.index] = answered


def replay(opened: SessionOpen, calls: Sequence[Call], eos_ids: Sequence[int]) -> LiveSession:
    """The live session that these captures came from."""
    session = LiveSession(opened)
    for call in sorted(calls, key=lambda call: call.index):
        session.next_index = call.index + 1
        if call.reply is None or not call.sampled_ids:
            continue
        parent = None if call.parent is None else session.answered[call.parent]
        before = [] if parent is None else [*parent.messages, parent.reply]
        tools = call.tools if parent is None else parent.tools
        token_ids = array("i", [] if parent is None else parent.token_ids)
        token_ids.extend(call.new_prompt_ids)
        token_ids.extend(call.sampled_ids)
        last = call.sampled_ids[-1]
        session.add(call, [*before, *call.new_messages], tools, token_ids, last if last in eos_ids else None)
    return session


class Captures:
    """All sessions of a gateway."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._live: dict[str, LiveSession] = {}

    async def open(self, opened: SessionOpen) -> bool:
        """Remember a session; False when this very session was open already."""
        key, body = names.session(opened.session_id), opened.model_dump_json()
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.hsetnx(key, _OPENED, body)
            pipe.expire(key, ceil(opened.ttl_s), nx=True)
            pipe.hmget(key, _OPENED, _STATE)
            is_new, _, (stored, state) = await pipe.execute()
        if state == _ENDED:
            raise Gone(f"session {opened.session_id[:12]}... has ended; open another for the next attempt")
        if SessionOpen.model_validate_json(stored) != opened:
            raise Conflict(f"session {opened.session_id[:12]}... is open with other settings")
        return bool(is_new)

    async def facts(self, session_id: str) -> SessionFacts:
        """What Redis says of a session right now."""
        live = self._live.get(session_id)
        if live is None:
            stored, state = await self._redis.hmget(names.session(session_id), _OPENED, _STATE)  # pyright: ignore[reportGeneralTypeIssues]
            if stored is None:
                return SessionFacts(None, False, None)
            opened = SessionOpen.model_validate_json(stored)
            timeline = await self._redis.get(names.timeline(opened.job_id))
        else:
            opened = live.opened
            async with self._redis.pipeline(transaction=False) as pipe:
                pipe.hmget(names.session(session_id), _OPENED, _STATE)
                pipe.get(names.timeline(opened.job_id))
                (stored, state), timeline = await pipe.execute()
        current = None if timeline is None else int(timeline)
        return SessionFacts(opened if stored else None, state == _ENDED, current)

    async def current_timeline(self, job_id: str) -> int | None:
        raw = await self._redis.get(names.timeline(job_id))
        return None if raw is None else int(raw)

    async def live(self, opened: SessionOpen, eos_ids: Sequence[int]) -> LiveSession:
        """The session's tokens, read back from Redis when this process has not met it."""
        session = self._live.get(opened.session_id)
        if session is None:
            calls = await self._calls(opened.session_id)
            # Another request of the session may have come first while this one waited for Redis.
            session = self._live.setdefault(opened.session_id, replay(opened, calls, eos_ids))
        session.expires_at = time.monotonic() + opened.ttl_s
        return session

    async def append(self, opened: SessionOpen, call: Call) -> None:
        """Keep a finished call; durable in Redis when this returns."""
        key = names.session_calls(opened.session_id)
        async with self._redis.pipeline(transaction=False) as pipe:
            pipe.rpush(key, call.model_dump_json())
            pipe.expire(key, ceil(opened.ttl_s), nx=True)
            await pipe.execute()

    async def mark_untrainable(self, opened: SessionOpen, index: int, reason: str) -> None:
        """Say afterwards that a kept call may not be trained on."""
        key = names.session(opened.session_id)
        async with self._redis.pipeline(transaction=False) as pipe:
            pipe.hset(key, f"{_MARK}{index}", reason)
            pipe.expire(key, ceil(opened.ttl_s), nx=True)
            await pipe.execute()

    async def close(self, session_id: str) -> None:
        """No call after this is admitted; raises NotFound for an unknown session."""
        if not await self._redis.exists(names.session(session_id)):
            raise NotFound(f"session {session_id[:12]}... is unknown: it was never opened, or has expired")
        await self._redis.hset(names.session(session_id), _STATE, _ENDED.decode())  # pyright: ignore[reportGeneralTypeIssues]

    async def captured(self, session_id: str) -> CapturedSession:
        """All that a closed session left, in order of arrival."""
        self._live.pop(session_id, None)
        facts: dict[Any, Any] = await self._redis.hgetall(names.session(session_id))  # pyright: ignore[reportGeneralTypeIssues]
        opened = SessionOpen.model_validate_json(facts[_OPENED.encode()])
        calls = []
        for call in sorted(await self._calls(session_id), key=lambda call: call.index):
            reason = facts.get(f"{_MARK}{call.index}".encode())
            if reason is not None and call.is_trainable:
                call = call.model_copy(update={"is_trainable": False, "untrainable_reason": reason.decode()})
            calls.append(call)
        return CapturedSession(session_id=session_id, rollout_id=opened.rollout_id, calls=tuple(calls))

    def forget_expired(self) -> None:
        """Drop the memory of sessions that Redis forgets too."""
        now = time.monotonic()
        for session_id in [key for key, live in self._live.items() if live.expires_at < now]:
            del self._live[session_id]

    async def _calls(self, session_id: str) -> list[Call]:
        rows = await self._redis.lrange(names.session_calls(session_id), 0, -1)  # pyright: ignore[reportGeneralTypeIssues]
        return [Call.model_validate_json(row) for row in rows]
