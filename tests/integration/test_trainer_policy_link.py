"""Publishing to a gateway that is killed, restarts or answers for an engine that starts anew."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Request
from starlette.responses import JSONResponse
from tests.fakes.server import serving
from tests.fakes.trainer import TrainerWorld
from tests.fakes.worker import until

from headrace.contracts.base import logprobs, token_ids
from headrace.contracts.policy import EngineState, PolicyStatus, PolicyVersion, ProbeResult, ServeSpec
from headrace.errors import JobFailed, StaleTimeline
from headrace.queue import names
from headrace.queue.slots import SlotClaim
from headrace_trainer import policy_link
from headrace_trainer.ownership import JobCancelled
from headrace_trainer.policy_link import PolicyLink

pytestmark = pytest.mark.integration
NEW = PolicyVersion(timeline=1, n=1)


class Gateway:
    """Answers publish and probe with the statuses it is given, then with 200."""

    def __init__(self) -> None:
        self.app, self.answers, self.asked = FastAPI(), [], []
        self.app.post("/admin/{what}")(self.answer)

    async def answer(self, request: Request, what: str) -> Any:
        self.asked.append(what)
        status = self.answers.pop(0) if self.answers else 200
        if status != 200:
            return JSONResponse({"error": {"message": "the engine is starting"}}, status_code=status)
        result = ProbeResult(
            version=NEW,
            sampled_ids=token_ids([1]),
            cold_logprobs=logprobs([-1]),
            cached_logprobs=logprobs([-1]),
        )
        return json.loads(result.model_dump_json())


class World:
    def __init__(self, trainer: TrainerWorld) -> None:
        self.trainer = trainer
        self.slot = SlotClaim(trainer.redis, "p", 0, "job_1")
        assert self.slot.try_acquire()
        self.repairs: list[str] = []
        self.link = PolicyLink(trainer.context, self.slot, "job_1", "serve", self.repairs.append)
        self.spec = ServeSpec(
            serve_id="serve", job_id="job_1", model_path="/old", architecture_hash="h", max_model_len=64,
            version=PolicyVersion(timeline=1, n=0), fence=self.slot.fence,
        )  # fmt: skip
        self.slot.serve(self.spec)

    def desired(self) -> ServeSpec:
        raw: Any = self.trainer.redis.get(names.slot_desired("p", 0))
        return ServeSpec.model_validate_json(raw)

    def report(self, state: EngineState, version: PolicyVersion, reason: str | None = None) -> None:
        status = PolicyStatus(
            state=state, serve_id="serve", version=version, fence=self.slot.fence, reason=reason
        )
        self.trainer.redis.set(names.slot_status("p", 0), status.model_dump_json())

    def gateway_comes_back(self) -> None:
        """A restarted gateway serves what it finds as the slot's desired state."""

        def serve() -> None:
            until(lambda: self.desired().version == NEW)
            self.report(EngineState.READY, NEW)

        threading.Thread(target=serve, daemon=True).start()


@pytest.fixture
def gateway() -> Iterator[tuple[Gateway, str]]:
    fake = Gateway()
    with serving(fake.app) as url:
        yield fake, url


@pytest.fixture
def make(tmp_path: Path, store, valkey_url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(policy_link, "REPAIR_PAUSE_S", 0.05)
    made: list[World] = []

    def make(url: str = "http://127.0.0.1:9") -> World:
        made.append(World(TrainerWorld(tmp_path, store, valkey_url, policy_url=url)))
        return made[0]

    yield make
    for world in made:
        world.link.close()
        world.slot.release()


def test_a_publish_to_a_killed_gateway_is_found_by_the_next_one(make):
    world = make()
    world.gateway_comes_back()
    served = world.link.publish(world.spec, Path("/new"), NEW, lambda: None)
    assert (served.version, served.model_path) == (NEW, "/new")
    assert world.desired() == served
    assert len(world.repairs) == 1


def test_a_publish_while_the_engine_starts_anew_waits_for_it(make, gateway):
    fake, url = gateway
    fake.answers = [503]
    world = make(url)
    world.report(EngineState.STARTING, world.spec.version)
    world.gateway_comes_back()
    assert world.link.publish(world.spec, Path("/new"), NEW, lambda: None).version == NEW


def test_an_engine_that_failed_at_older_weights_is_given_the_new_ones(make):
    world = make()
    world.report(EngineState.FAILED, world.spec.version, "unreadable weights")
    world.gateway_comes_back()
    assert world.link.publish(world.spec, Path("/new"), NEW, lambda: None).version == NEW


def test_a_probe_is_asked_again_after_the_gateway_came_back(make, gateway):
    fake, url = gateway
    fake.answers = [503, 503]
    world = make(url)
    world.report(EngineState.READY, world.spec.version)
    assert world.link.probe(world.spec, [1, 2], 1, lambda: None).version == NEW
    assert fake.asked == ["probe"] * 3


def test_the_wait_is_bounded_and_can_be_cancelled(make, monkeypatch):
    world = make()
    monkeypatch.setattr(policy_link, "REPAIR_S", 0.5)
    with pytest.raises(JobFailed, match="did not serve"):
        world.link.publish(world.spec, Path("/new"), NEW, lambda: None)
    world.report(EngineState.READY, world.spec.version)
    with pytest.raises(JobFailed, match="did not answer /admin/probe"):
        world.link.probe(world.spec, [1], 1, lambda: None)

    def cancelled() -> None:
        raise JobCancelled

    with pytest.raises(JobCancelled):
        world.link.publish(world.spec, Path("/new"), NEW, cancelled)


@pytest.mark.parametrize(("status", "error"), [(409, StaleTimeline), (500, JobFailed), (400, JobFailed)])
def test_a_refusal_is_not_tried_again(make, gateway, status, error):
    fake, url = gateway
    fake.answers = [status]
    with pytest.raises(error):
        make(url).link.publish(_spec(), Path("/new"), NEW, lambda: None)
    assert fake.asked == ["publish"]


def _spec() -> ServeSpec:
    return ServeSpec(
        serve_id="serve", job_id="job_1", model_path="/old", architecture_hash="h", max_model_len=64,
        version=PolicyVersion(timeline=1, n=0), fence=1,
    )  # fmt: skip
