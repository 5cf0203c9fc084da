"""The gateway's use cases: open and end sessions, answer a call, list models. Knows no FastAPI."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

from headrace.contracts.policy import CapturedSession, EngineState, ServeSpec, SessionOpen
from headrace.errors import Unavailable
from headrace.render import Renderer
from headrace_policy.capture import Captures, LiveSession
from headrace_policy.chat import Backend, ChatRequest, complete
from headrace_policy.in_flight import CallTask, InFlight
from headrace_policy.routing import admit, check_current
from headrace_policy.slot import EngineSlot


class Gateway:
    """Sessions, their calls, and the engine that answers them."""

    def __init__(self, captures: Captures, slot: EngineSlot, in_flight: InFlight) -> None:
        self.captures, self.slot, self.in_flight = captures, slot, in_flight
        self._renderer: tuple[str, Renderer] | None = None
        self._chores: set[asyncio.Task[None]] = set()

    async def open_session(self, opened: SessionOpen) -> bool:
        """Open a session; False when this very one was open already."""
        timeline = await self.captures.current_timeline(opened.job_id)
        check_current(opened, timeline, self._served_id)
        self.slot.require_ready()
        return await self.captures.open(opened)

    async def end_session(self, session_id: str) -> CapturedSession:
        """Refuse further calls, stop those that run, and hand over what was captured."""
        await self.captures.close(session_id)
        await self.in_flight.stop_session(session_id, "the session ended before the answer")
        return await self.captures.captured(session_id)

    async def start_call(self, session_id: str, body: Any, is_retry: bool) -> CallTask:
        """Admit a call and start it as a task of its own; its result is the chat completion."""
        opened = admit(session_id, await self.captures.facts(session_id), self._served_id)
        request = ChatRequest.parse(body)
        spec = self.slot.served
        if spec is None:
            raise Unavailable("the policy engine serves nothing")
        renderer = await self._renderer_of(spec)
        live = await self.captures.live(opened, renderer.eos_ids)
        call = CallTask(session_id, live.take_index())
        await self._mark_superseded(live, request, call, is_retry)
        backend = Backend(self.slot.engine, spec, renderer)
        self.in_flight.start(call, self._answer(backend, live, request, call))
        return call

    async def admitted_model(self, session_id: str) -> str:
        """Name of the model behind a session."""
        opened = admit(session_id, await self.captures.facts(session_id), self._served_id)
        return opened.serve_id

    def left(self, call: CallTask) -> None:
        """The client has gone before it got the answer."""
        if call.is_running:
            call.stop("the client disconnected before the answer")
            return
        reason = "the client disconnected before the answer was delivered"
        chore = asyncio.create_task(self._mark(call, reason))
        self._chores.add(chore)
        chore.add_done_callback(self._chores.discard)

    async def _answer(
        self, backend: Backend, live: LiveSession, request: ChatRequest, call: CallTask
    ) -> dict[str, Any]:
        return await complete(self.captures, backend, live, request, call, self._not_ready_reason())

    def _not_ready_reason(self) -> str | None:
        status = self.slot.status()
        if status.state is EngineState.READY:
            return None
        return f"the policy engine is {status.state}" + (f": {status.reason}" if status.reason else "")

    async def _mark_superseded(
        self, live: LiveSession, request: ChatRequest, call: CallTask, is_retry: bool
    ) -> None:
        """Mark the earlier of two equal requests when the later can only be its retry.

        Equal requests one after the other are not: an agent without memory asks the same twice.
        """
        digest = hashlib.sha256(json.dumps(request.asked).encode()).digest()
        earlier, live.asked[digest] = live.asked.get(digest), call
        if earlier is not None and (is_retry or earlier.is_running):
            reason = f"superseded by a retry (call {call.index})"
            await self.captures.mark_untrainable(live.opened, earlier.index, reason)

    async def _mark(self, call: CallTask, reason: str) -> None:
        facts = await self.captures.facts(call.session_id)
        if facts.opened is not None:
            await self.captures.mark_untrainable(facts.opened, call.index, reason)

    async def _renderer_of(self, spec: ServeSpec) -> Renderer:
        if self._renderer is None or self._renderer[0] != spec.architecture_hash:
            renderer = await asyncio.to_thread(Renderer.load, Path(spec.model_path))
            self._renderer = (spec.architecture_hash, renderer)
        return self._renderer[1]

    @property
    def _served_id(self) -> str | None:
        return self.slot.served.serve_id if self.slot.served else None
