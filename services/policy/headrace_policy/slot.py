"""The slot's engine: brought to the desired state, kept there, reported. One object per gateway."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import suppress

import aiohttp
from redis.asyncio import Redis
from redis.exceptions import RedisError

from headrace import log
from headrace.contracts.policy import (
    EngineState,
    PolicyStatus,
    ProbeRequest,
    ProbeResult,
    PublishRequest,
    PublishResult,
    ServeSpec,
)
from headrace.errors import BadRequest, HeadraceError, StaleTimeline, Unavailable
from headrace.queue import names
from headrace.queue.scripts import source
from headrace_policy import engine, parsers, weights
from headrace_policy.engine_client import EngineClient
from headrace_policy.in_flight import InFlight
from headrace_policy.settings import PolicySettings
from headrace_policy.versions import can_swap_in_place, check_fence, is_same_state

LOOK_S = 0.3
REPORT_S = 1.0
REPORT_EXPIRES_S = 10
_LOG = log.get(__name__)

Launch = Callable[[ServeSpec, PolicySettings], engine.EngineProcess]
"""Starts the engine process for a spec."""


def launch_vllm(spec: ServeSpec, settings: PolicySettings) -> engine.EngineProcess:
    parsers.require_known(spec.engine_args)
    return engine.EngineProcess.start(
        engine.command(spec, settings.engine_port, settings.engine_device),
        engine.environment(os.environ, settings.engine_device),
        settings.engine_log,
    )


class EngineSlot:
    """What one (pool, slot) serves.

    `lock` guards the engine: a publish and a reconciliation never overlap, and the desired state is
    read under it, so that a publish is never undone by a spec read before it.
    """

    def __init__(
        self,
        settings: PolicySettings,
        redis: Redis,
        http: aiohttp.ClientSession,
        in_flight: InFlight,
        launch: Launch,
    ) -> None:
        self._settings, self._redis, self._in_flight = settings, redis, in_flight
        self._launch = launch
        self.engine = EngineClient(settings.engine_url, http)
        self.lock = asyncio.Lock()
        self.served: ServeSpec | None = None
        """What the engine serves, or is being started for."""
        self._process: engine.EngineProcess | None = None
        self._failed: ServeSpec | None = None
        self._state, self._reason, self._since = EngineState.IDLE, None, time.time()

    # what others see

    def status(self) -> PolicyStatus:
        return PolicyStatus(
            state=self._state,
            serve_id=self.served.serve_id if self.served else None,
            version=self.served.version if self.served else None,
            fence=self.served.fence if self.served else 0,
            reason=self._reason,
            since=self._since,
            n_in_flight=len(self._in_flight),
        )

    def require_ready(self) -> ServeSpec:
        """What is served; raises Unavailable while no engine answers."""
        if self._state is not EngineState.READY or self.served is None:
            detail = f": {self._reason}" if self._reason else ""
            raise Unavailable(f"the policy engine is {self._state}{detail}")
        return self.served

    async def publish(self, request: PublishRequest) -> PublishResult:
        """Make the request's weights live under its fence, and the slot's desired state."""
        weights.check_folder(request.weights_path)
        self.require_ready()
        async with self.lock:
            served = check_fence(self.require_ready(), request.serve_id, request.fence)
            await self._check_owner(request.fence)
            spec = served.model_copy(update={"version": request.version, "model_path": request.weights_path})
            pause_s = await self._swap(spec)
            await self._write_desired(spec)
        await self._report()  # the owner that waits for this version must not read an older report
        _LOG.info("policy.published", version=str(request.version), pause_s=round(pause_s, 3))
        return PublishResult(version=request.version, pause_s=pause_s)

    async def probe(self, request: ProbeRequest) -> ProbeResult:
        async with self.lock:
            check_fence(self.require_ready(), request.serve_id, request.fence)
            return await weights.probe(self.engine, request)

    # the loops

    async def keep_reconciled(self) -> None:
        """Bring the engine to the desired state, for ever."""
        while True:
            try:
                await self.reconcile()
            except RedisError as error:
                _LOG.warning("policy.redis_unreachable", error=str(error))
            await asyncio.sleep(LOOK_S)

    async def keep_reporting(self) -> None:
        while True:
            await self._report()
            await asyncio.sleep(REPORT_S)

    async def reconcile(self) -> None:
        """One look at the desired state and the engine."""
        async with self.lock:
            desired = await self._read_desired()
            await self._notice_death()
            if desired is None or desired == self._failed:
                return
            if self._process is None or self.served is None:
                await self._restart(desired)
            elif is_same_state(self.served, desired):
                if desired == self.served:
                    return
                self.served = desired
            elif can_swap_in_place(self.served, desired):
                await self._take_over(desired)
            else:
                await self._restart(desired)
            await self._report()

    async def close(self) -> None:
        await self._stop_process()
        with suppress(RedisError):
            await self._redis.delete(names.slot_status(self._settings.pool, self._settings.slot))

    # steps

    async def _report(self) -> None:
        key = names.slot_status(self._settings.pool, self._settings.slot)
        with suppress(RedisError):  # the report expires by itself: that is what it says then
            await self._redis.set(key, self.status().model_dump_json(), ex=REPORT_EXPIRES_S)

    async def _take_over(self, desired: ServeSpec) -> None:
        assert self.served is not None
        if desired.serve_id != self.served.serve_id:
            await self._in_flight.stop_all("the policy was given other weights to serve")
        try:
            await self._swap(desired)
        except BadRequest as error:  # unreadable weights, which a new engine could not load either
            await self._stop_process()
            self._fail(desired, error)
        except Unavailable:
            _LOG.warning("policy.take_over_failed", serve_id=desired.serve_id)  # the next look starts anew

    async def _swap(self, spec: ServeSpec) -> float:
        try:
            scratch = self._settings.home / "reload"
            pause_s = await weights.swap(self.engine, spec.version, spec.model_path, scratch)
        except Unavailable as error:
            _LOG.error("policy.swap_failed", version=str(spec.version), error=str(error))
            await self._stop_process()
            self._enter(EngineState.STARTING, f"restarting after a failed swap of weights: {error}")
            raise
        self.served = spec
        return pause_s

    async def _restart(self, spec: ServeSpec) -> None:
        await self._in_flight.stop_all("the policy engine is restarted")
        await self._stop_process()
        self.served, self._failed = spec, None
        self._enter(EngineState.STARTING, self._reason)
        started = time.monotonic()
        try:
            await asyncio.to_thread(engine.wait_for_free_port, self._settings.engine_port)
            self._process = self._launch(spec, self._settings)
            if not await self._wait_until_healthy(spec):
                await self._stop_process()
                return
            await weights.warm_up(self.engine, spec.version)
        except HeadraceError as error:
            await self._stop_process()
            self._fail(spec, error)
            return
        self._enter(EngineState.READY, None)
        seconds = round(time.monotonic() - started, 1)
        _LOG.info("policy.engine_ready", serve_id=spec.serve_id, seconds=seconds)

    def _fail(self, spec: ServeSpec, error: HeadraceError) -> None:
        """Say why `spec` is not served; the next other spec is tried again."""
        self.served = self._failed = spec
        self._enter(EngineState.FAILED, error.message)
        _LOG.error("policy.engine_failed", serve_id=spec.serve_id, error=error.message)

    async def _wait_until_healthy(self, spec: ServeSpec) -> bool:
        """True once the engine answers; False when another engine has been asked for meanwhile."""
        assert self._process is not None
        deadline = time.monotonic() + self._settings.engine_start_timeout_s
        while not await self.engine.is_healthy():
            if not self._process.is_alive:
                raise Unavailable(f"the engine ended while it started: {self._process.last_lines()}")
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"the engine did not start within {self._settings.engine_start_timeout_s:.0f} s: "
                    f"{self._process.last_lines()}"
                )
            with suppress(RedisError):
                desired = await self._read_desired()
                if desired is not None and not can_swap_in_place(spec, desired):
                    return False
            await asyncio.sleep(LOOK_S)
        return True

    async def _notice_death(self) -> None:
        if self._process is None or self._process.is_alive:
            return
        reason = f"the engine died ({self._process.process.returncode}) and is started again"
        _LOG.error("policy.engine_died", log=self._process.last_lines())
        self._enter(EngineState.STARTING, reason)
        await self._stop_process()  # what it may have left in its process group

    def _enter(self, state: EngineState, reason: str | None) -> None:
        if state is not self._state:
            self._since = time.time()
        self._state, self._reason = state, reason

    async def _stop_process(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await asyncio.to_thread(process.stop)

    async def _read_desired(self) -> ServeSpec | None:
        raw = await self._redis.get(names.slot_desired(self._settings.pool, self._settings.slot))
        return ServeSpec.model_validate_json(raw) if raw else None

    async def _check_owner(self, fence: int) -> None:
        current = int(await self._redis.get(self._fence_key) or 0)
        if current > fence:
            raise StaleTimeline(f"the slot has a newer owner (fence {current}, the request carries {fence})")

    async def _write_desired(self, spec: ServeSpec) -> None:
        desired = names.slot_desired(self._settings.pool, self._settings.slot)
        arguments = (self._fence_key, desired, str(spec.fence), spec.model_dump_json())
        if not await self._redis.eval(source("set_fenced"), 2, *arguments):  # pyright: ignore[reportGeneralTypeIssues]
            raise StaleTimeline("the slot has a newer owner; its desired state stays")

    @property
    def _fence_key(self) -> str:
        return names.slot_fence(self._settings.pool, self._settings.slot)
