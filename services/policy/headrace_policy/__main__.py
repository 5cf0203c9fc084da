"""`python -m headrace_policy`: the gateway, and the engine that it owns."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import aiohttp
import uvicorn
from redis.asyncio import Redis

from headrace import log
from headrace_policy.app import create_app
from headrace_policy.capture import Captures
from headrace_policy.gateway import Gateway
from headrace_policy.in_flight import InFlight
from headrace_policy.settings import PolicySettings
from headrace_policy.slot import EngineSlot, Launch, launch_vllm

ENGINE_KEEP_ALIVE_S = 60
FORGET_EVERY_S = 60.0
STOP_GRACE_S = 3


async def serve(settings: PolicySettings, launch: Launch) -> None:
    """Run until SIGTERM or SIGINT; the engine is stopped before this returns."""
    redis = Redis.from_url(
        settings.redis_url, socket_timeout=30, socket_connect_timeout=5, max_connections=1024
    )
    # The client's default of 100 connections would cap the rollouts of a whole pool.
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=ENGINE_KEEP_ALIVE_S)
    async with aiohttp.ClientSession(connector=connector) as http:
        in_flight = InFlight()
        slot = EngineSlot(settings, redis, http, in_flight, launch)
        captures = Captures(redis)
        app = create_app(settings, Gateway(captures, slot, in_flight), redis)
        config = uvicorn.Config(
            app,
            host=settings.host,
            port=settings.port,
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=STOP_GRACE_S,
        )
        loops = [
            asyncio.create_task(slot.keep_reconciled()),
            asyncio.create_task(slot.keep_reporting()),
            asyncio.create_task(_keep_forgetting(captures)),
        ]
        server = asyncio.create_task(_Server(config).serve())
        try:
            # A loop that fails ends the process with its traceback; whoever supervises it starts it anew.
            done, _ = await asyncio.wait({server, *loops}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (*loops, server):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            await slot.close()
    await redis.aclose()


class _Server(uvicorn.Server):
    """Stops on a signal without raising it again, so that the engine can be stopped afterwards."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield


async def _keep_forgetting(captures: Captures) -> None:
    while True:
        await asyncio.sleep(FORGET_EVERY_S)
        captures.forget_expired()


def run(launch: Launch) -> None:
    """The whole process: settings from the environment, on uvloop where it is installed."""
    log.configure("policy")
    gc.freeze()  # what start-up made is never garbage; collections get shorter
    with asyncio.Runner(loop_factory=uvicorn.Config("").get_loop_factory()) as runner:
        runner.run(serve(PolicySettings(), launch))


if __name__ == "__main__":
    run(launch_vllm)
