"""A trained model answers its owner over the API: a real gateway over the fake engine, real Valkey, real SQLite."""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Iterator

import pytest
from tests.fakes.policy_stack import until
from tests.integration.inference_world import CHAT, POOL, TRAINED, World, running_world, until_free
from tests.integration.running_api import ALICE, CHARLIE, serving

from headrace.queue import names
from headrace_api.settings import ApiSettings
from headrace_trainer import inference

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def running(_valkey_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with running_world(tmp_path_factory.mktemp("home"), _valkey_server) as world:
        yield world


@pytest.fixture
def world(running: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """The stack with an owner of its own for each test, and short bounds."""
    for name, value in {"GIVE_WAY_S": 1.0, "TURN_S": 0.5, "LOOK_S": 0.05, "ASK_SQL_EVERY_S": 0.05}.items():
        monkeypatch.setattr(inference, name, value)
    for key in running.redis.scan_iter("headrace:inference:*"):
        running.redis.delete(key)
    with running.owner():
        yield running
    running.set_mode("ok")
    running.end_jobs()


def test_a_trained_model_answers_its_owner_with_its_usage(world: World):
    reply = world.ask()
    assert reply.status_code == 200, reply.text
    body = reply.json()
    assert body["choices"][0]["message"] == {"role": "assistant", "content": "Hi"}
    assert body["model"] == TRAINED
    usage = body["usage"]
    assert usage["completion_tokens"] == 3
    assert usage["total_tokens"] == usage["prompt_tokens"] + 3
    assert "job_trained/checkpoints" in world.desired().model_path
    assert world.desired().engine_args[-2:] == ("--tool-call-parser", "hermes")


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/api/v1/chat/completions", "/inference/v1/chat/completions"]
)
def test_the_routes_other_names_answer_too(world: World, path: str):
    assert world.ask("checkpoint:ckpt_1", path=path).status_code == 200


def test_what_the_caller_decides_reaches_the_engine_and_the_rest_is_left_out(world: World):
    tools = [{"type": "function", "function": {"name": "go", "parameters": {"type": "object"}}}]
    ignored = {
        "thinking_budget": 256, "thinking_mode": "x", "stop_after_tool_calls": 1, "function_call": "auto",
        "parallel_tool_calls": False, "extra_body": {"a": 1},
    }  # fmt: skip
    reply = world.ask(temperature=0.25, max_tokens=7, stop=["i"], tools=tools, seed=5, **ignored)
    assert reply.status_code == 200, reply.text
    assert reply.json()["choices"][0]["message"]["content"] == "H"
    asked = world.seen()["sampling_params"]
    assert (asked["temperature"], asked["max_tokens"], asked["stop"]) == (0.25, 7, ["i"])
    assert world.seen("derendered")["chat_request"]["tools"] == tools
    assert world.ask(temperature=0.25, seed=5).status_code == 200
    assert world.seen()["sampling_params"]["seed"] == asked["seed"], "a seed draws the same again"


def test_a_streamed_answer_comes_as_events(world: World):
    with world.http.stream(
        "POST", "/inference/v1/chat/completions",
        json={"model": TRAINED, "messages": [{"role": "user", "content": "hi"}], "stream": True,
              "stream_options": {"include_usage": True}},
    ) as reply:  # fmt: skip
        assert reply.status_code == 200
        assert reply.headers["content-type"].startswith("text/event-stream")
        lines = [line.removeprefix("data: ") for line in reply.iter_lines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    chunks = [json.loads(line) for line in lines[:-1]]
    text = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks if chunk["choices"])
    assert text == "Hi"
    assert chunks[-1]["usage"]["completion_tokens"] == 3


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"model": ""}, 400, '"model" must name a model'),
        ({"messages": []}, 400, '"messages" must be a list'),
        ({"temperature": "hot"}, 400, '"temperature" must be a number from 0 to 2'),
        ({"n": 2}, 400, '"n" = 2 is not supported'),
        ({"max_tokens": 0}, 400, "max_tokens must be a positive integer"),
        ({"model": "ft:tiny:job_none"}, 404, "model 'ft:tiny:job_none' does not exist"),
    ],
)
def test_a_request_that_makes_no_sense_gets_one_sentence(world: World, body, status, words):
    reply = world.ask(**body)
    assert reply.status_code == status, reply.text
    assert words in reply.json()["error"]["message"]


@pytest.mark.parametrize("model", [TRAINED, "checkpoint:ckpt_1"])
def test_another_organisations_model_does_not_exist(world: World, model: str):
    reply = world.ask(model, key=CHARLIE)
    assert reply.status_code == 404
    assert "does not exist" in reply.json()["detail"]
    assert world.ask(model, key="hr_nobody").status_code == 401


def test_nothing_of_a_call_stays_and_nothing_of_it_is_a_trajectory(world: World):
    assert world.ask().status_code == 200
    until(lambda: not world.n_in_flight(), 10, "the call still counts as in flight")
    assert not list(world.redis.scan_iter("headrace:session:*"))
    assert not world.redis.exists(names.trajectories(names.inference_job(POOL)))
    assert names.inference_job(POOL).encode() not in world.redis.hgetall(names.ACTIVE_STREAMS)


def test_while_a_job_holds_the_engine_the_answer_names_it(world: World):
    until_free(world)
    mine, theirs = world.add_job("rl", "running"), world.add_job("rl", "running", org_id="charlie")
    far = {"lease_owner": "me"}
    for job_id, shown in ((mine, f"job {mine}"), (theirs, "a job of another organisation")):
        _lease(world, job_id, **far)
        slot = world.slot(job_id)
        until(slot.try_acquire, 20, "the slot is not free")
        reply = world.ask()
        slot.release()
        world.end_job(job_id)
        assert reply.status_code == 503
        assert reply.json()["error"]["message"] == f"{shown} holds the engine; ask again later"
        assert int(reply.headers["retry-after"]) > 0


def _lease(world: World, job_id: str, **fields: str) -> None:
    """A running job whose owner lives."""
    from datetime import timedelta

    from headrace.clock import now
    from headrace.store.tables import Job

    with world.store.write() as session:
        job = session.get_one(Job, job_id)
        job.lease_expires_at = now() + timedelta(minutes=5)
        job.lease_owner = fields["lease_owner"]


def test_a_job_that_has_ended_and_not_yet_let_go_is_waited_for(world: World):
    until_free(world)
    slot = world.slot("job_trained")
    assert slot.try_acquire()
    asking = world.asking()
    time.sleep(0.5)
    slot.release()
    assert asking.result().status_code == 200


def test_a_waiting_job_gets_the_engine_although_a_call_runs(world: World):
    assert world.ask().status_code == 200
    world.set_mode("hang")
    asking = world.asking()
    until(world.n_in_flight, 10, "the call did not begin")
    job_id = world.add_job("rl", "queued")
    slot = world.slot(job_id)
    until(slot.try_acquire, 10, "inference did not let go")
    refused = world.ask()
    assert refused.status_code == 503
    assert f"job {job_id}" in refused.json()["detail"]
    served = world.desired()
    slot.serve(served.model_copy(update={"serve_id": "job", "fence": slot.fence}))
    cut = asking.result()
    assert cut.status_code == 503
    assert "other weights" in cut.json()["detail"]
    assert "retry-after" in cut.headers
    slot.release()
    world.end_job(job_id)
    world.set_mode("ok")
    assert world.ask().status_code == 200, "it is taken again when the job has ended"


def test_a_running_call_is_let_finish_before_a_waiting_job_gets_the_engine(world: World, monkeypatch):
    monkeypatch.setattr(inference, "GIVE_WAY_S", 20.0)
    assert world.ask().status_code == 200
    world.set_mode("hang")
    asking = world.asking()
    until(world.n_in_flight, 10, "the call did not begin")
    job_id = world.add_job("eval", "queued")
    # A call that begins before the owner has seen the job is let in, and would hang with the first.
    until(lambda: world.gives_way_to() == job_id, 10, "new calls are still let in")
    assert world.ask().status_code == 503
    slot = world.slot(job_id)
    assert not slot.try_acquire()
    world.set_mode("ok")
    assert asking.result().status_code == 200
    until(slot.try_acquire, 10, "inference did not let go")
    slot.release()
    world.end_job(job_id)


def test_a_queued_sft_job_does_not_take_the_engine_away(world: World):
    job_id = world.add_job("sft", "queued")
    assert world.ask().status_code == 200
    world.end_job(job_id)


def test_two_models_at_once_are_served_one_after_the_other(world: World):
    names_of = [TRAINED, "other", "tiny", TRAINED, "other"]
    asked = [world.asking(model) for model in names_of]
    for model, asking in zip(names_of, asked, strict=True):
        reply = asking.result()
        assert reply.status_code == 200, reply.text
        assert reply.json()["model"] == model


def test_a_model_in_constant_use_does_not_starve_another(world: World):
    assert world.ask().status_code == 200
    world.set_mode("hang")
    busy = world.asking()
    until(world.n_in_flight, 10, "the call did not begin")
    other = world.asking("other")
    until(lambda: not world.redis.exists(names.inference_offer(POOL, 0)) or b'"is_open":false' in
          (world.redis.get(names.inference_offer(POOL, 0)) or b""), 10, "its turn does not end")  # fmt: skip
    late = world.asking()
    world.set_mode("ok")
    assert [asking.result().status_code for asking in (busy, other, late)] == [200, 200, 200]
    assert busy.answered_at < other.answered_at < late.answered_at


def test_a_model_that_cannot_be_served_says_why(world: World):
    reply = world.ask("misnamed")
    assert reply.status_code == 503
    assert (
        "tool_parser = 'hermess' is no parser of the engine; did you mean 'hermes'?" in reply.json()["detail"]
    )
    assert "retry-after" in reply.headers
    assert world.ask().status_code == 200, "the next model is served all the same"


def test_nobody_calling_for_a_while_frees_the_engine(running: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(inference, "LOOK_S", 0.05)
    with running.owner(HEADRACE_INFERENCE_IDLE="0.5"):
        assert running.ask().status_code == 200
        assert running.holder() == names.inference_job(POOL)
        until_free(running)
        assert not running.redis.exists(names.inference_offer(POOL, 0))
        assert not running.redis.exists(names.timeline(names.inference_job(POOL)))
        assert running.ask().status_code == 200


def test_a_client_that_leaves_stops_its_call(world: World):
    assert world.ask().status_code == 200
    world.set_mode("hang")
    with socket.create_connection((world.http.base_url.host, world.http.base_url.port)) as client:
        body = json.dumps({"model": TRAINED, "messages": [{"role": "user", "content": "hi"}]}).encode()
        head = f"POST {CHAT} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {ALICE}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        client.sendall(head.encode() + body)
        until(world.n_in_flight, 10, "the call did not begin")
    until(lambda: not world.n_in_flight(), 10, "the call still counts as in flight")
    until(lambda: not world.gateway.status().n_in_flight, 10, "the gateway still works on it")


def test_an_api_that_stops_during_a_call_leaves_nothing_of_it(world: World):
    assert world.ask().status_code == 200
    until(lambda: not world.n_in_flight(), 10, "the call still counts as in flight")
    world.set_mode("hang")
    with serving(ApiSettings.model_validate(world.environment)) as url:
        asking = world.asking(base_url=url)
        until(world.n_in_flight, 10, "the call did not begin")
    assert asking.failed() or asking.result().status_code >= 500
    assert not world.n_in_flight()
    assert not list(world.redis.scan_iter("headrace:session:*"))


def test_a_killed_gateway_comes_back_and_answers(world: World):
    assert world.ask().status_code == 200
    world.gateway.stop(signal.SIGKILL)
    asking = world.asking()
    world.gateway.start()
    assert asking.result().status_code == 200, asking.result().text
