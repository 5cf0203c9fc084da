"""Calls that wait for the engine, so that ending a session or changing the model can stop them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class CallTask:
    """One running call. `stop` cancels it with the reason that its capture will carry."""

    def __init__(self, session_id: str, index: int) -> None:
        self.session_id, self.index = session_id, index
        self.stop_reason: str | None = None
        self.task: asyncio.Task[Any] | None = None

    def stop(self, reason: str) -> None:
        self.stop_reason = self.stop_reason or reason
        if self.task is not None:
            self.task.cancel()

    @property
    def is_running(self) -> bool:
        return self.task is not None and not self.task.done()


class InFlight:
    """All running calls of the gateway."""

    def __init__(self) -> None:
        self._calls: set[CallTask] = set()

    def __len__(self) -> int:
        return len(self._calls)

    def start(self, call: CallTask, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run `work` as the call's own task, which a vanished client does not cancel by itself."""
        task = asyncio.create_task(work)
        call.task = task
        self._calls.add(call)
        task.add_done_callback(lambda _: self._calls.discard(call))
        return task

    async def stop_session(self, session_id: str, reason: str) -> None:
        """Stop a session's calls and wait until each is captured."""
        await self._stop([call for call in self._calls if call.session_id == session_id], reason)

    async def stop_all(self, reason: str) -> None:
        await self._stop(list(self._calls), reason)

    async def _stop(self, calls: list[CallTask], reason: str) -> None:
        for call in calls:
            call.stop(reason)
        tasks = [call.task for call in calls if call.task is not None]
        if tasks:
            await asyncio.wait(tasks)
