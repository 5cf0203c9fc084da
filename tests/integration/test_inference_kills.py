"""Whatever of inference is killed, the engine is free again and calls are answered again. Slow: leases must lapse."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
from tests.fakes.policy_stack import until
from tests.integration.inference_world import HI, POOL, TRAINED, World, running_world, until_free

from headrace.queue import names
from headrace.queue.slots import SLOT_LEASE_S

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture
def world(valkey_url: str, tmp_path: Path) -> Iterator[World]:
    with running_world(tmp_path / "home", valkey_url) as world:
        yield world


@contextmanager
def process(world: World, module: str, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(
        [sys.executable, "-m", module], env={**os.environ, **world.environment, **variables}
    )
    try:
        yield child
    finally:
        child.terminate()
        child.wait(timeout=20)


def evaluator(world: World):
    return process(world, "headrace_trainer.evaluator")


def test_a_killed_evaluator_frees_the_engine_and_the_next_one_answers(world: World):
    with evaluator(world) as first:
        assert world.ask().status_code == 200
        world.set_mode("hang")
        asking = world.asking()
        until(world.n_in_flight, 10, "the call did not begin")
        first.send_signal(signal.SIGKILL)
        first.wait(timeout=10)
        world.set_mode("ok")
        assert asking.result().status_code == 200, "the call itself needs no evaluator"
    slot = world.slot("job_next")
    until(slot.try_acquire, SLOT_LEASE_S + 5, "the engine stays held by the dead")
    slot.release()
    with evaluator(world):
        assert world.ask().status_code == 200
        assert world.holder() == names.inference_job(POOL)
    until_free(world, 1)


def test_a_killed_api_leaves_no_call_that_keeps_the_engine(world: World):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with ExitStack() as stack:
        stack.enter_context(evaluator(world))
        api = stack.enter_context(process(world, "headrace_api", HEADRACE_API_PORT=str(port)))
        url = f"http://127.0.0.1:{port}"
        until(lambda: _answers(url), 30, "the API does not answer")
        assert world.ask().status_code == 200
        world.set_mode("hang")
        asking = world.asking(base_url=url)
        until(world.n_in_flight, 10, "the call did not begin")
        waiting = world.asking("other", base_url=url)
        until(lambda: world.redis.hlen(names.inference_wishes(POOL, 0)), 10, "the other call does not wait")
        api.send_signal(signal.SIGKILL)
        api.wait(timeout=10)
        assert asking.failed()
        assert waiting.failed()
        until(lambda: not world.gateway.status().n_in_flight, 20, "the gateway goes on with nobody's call")
        job_id = world.add_job("rl", "queued")
        slot = world.slot(job_id)
        until(slot.try_acquire, 10, "inference did not let go")
        slot.release()
        world.end_job(job_id)
        world.set_mode("ok")
        assert world.ask().status_code == 200


def test_without_an_owner_the_wait_is_bounded_and_says_whom_to_look_for(world: World):
    reply = world.ask()
    assert reply.status_code == 503
    assert f"the evaluator of pool {POOL} does not answer" in reply.json()["detail"]
    assert reply.headers["retry-after"] == "5"
    assert world.http.post(
        "/v1/chat/completions", json={"model": TRAINED, "messages": HI[:0]}
    ).is_client_error


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health").status_code == 200
    except httpx.TransportError:
        return False
