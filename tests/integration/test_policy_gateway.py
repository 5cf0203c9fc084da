"""The gateway process over a fake engine: sessions, captures, failures, reconciliation."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.fakes.engine import PLAIN, STOP_ID
from tests.fakes.policy_stack import JOB, TRAINER, WORKER, PolicyStack, until
from tests.fakes.tiny_model import make_tiny_model

from headrace.contracts.base import token_ids
from headrace.contracts.policy import (
    EngineState,
    PolicyVersion,
    ProbeRequest,
    PublishRequest,
    Sampling,
    ServeSpec,
)
from headrace.queue import names

pytestmark = pytest.mark.integration
HI = [{"role": "user", "content": "hi"}]
SAID = "Hi"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def valkey_server(_valkey_server: str) -> str:
    """The session's Valkey as it is: this module's gateway keeps its keys across tests."""
    return _valkey_server


@pytest.fixture(scope="module")
def running(
    _valkey_server: str, model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PolicyStack]:
    stack = PolicyStack(tmp_path_factory.mktemp("home"), _valkey_server, "tests.fakes.gateway")
    stack.start()
    yield stack
    stack.close()


@pytest.fixture
def stack(running: PolicyStack, model: Path) -> PolicyStack:
    """The module's gateway, serving `serve_1` at version 1.0, its fake engine answering."""
    running.redis.set(names.timeline(JOB), 1)
    running.serve(running.spec(model))
    set_mode(running, "ok")
    return running


def set_mode(stack: PolicyStack, mode: str) -> None:
    httpx.post(f"{stack.engine_url}/fake", json={"mode": mode})


def control(stack: PolicyStack) -> list[str]:
    return httpx.get(f"{stack.engine_url}/fake").json()["control"]


def last_request(stack: PolicyStack) -> dict[str, Any]:
    return httpx.get(f"{stack.engine_url}/fake").json()["requests"][-1]


def n_requests(stack: PolicyStack) -> int:
    return len(httpx.get(f"{stack.engine_url}/fake").json()["requests"])


def test_two_turns_are_captured_as_deltas_and_handed_over_at_the_end(stack: PolicyStack):
    session = stack.open(sampling=Sampling(temperature=0.7, max_tokens=9, seed=3))
    first = stack.chat(session, HI, temperature=0.1, top_p=0.5).json()
    assert first["choices"][0]["message"] == {"role": "assistant", "content": SAID}
    more = [*HI, first["choices"][0]["message"], {"role": "user", "content": "more"}]
    assert stack.chat(session, more).status_code == 200
    captured = stack.end(session)
    one, two = captured.calls
    assert (one.index, one.parent, two.index, two.parent) == (0, None, 1, 0)
    assert list(one.sampled_ids) == [*PLAIN, STOP_ID]
    assert list(one.sampled_logprobs) == [-0.5, -1.5, -2.5]
    assert [str(span.version) for span in one.version_spans] == ["1.0"]
    assert one.overridden == ("temperature", "top_p")
    assert one.temperature == 0.7
    assert one.seed is not None
    assert one.seed != two.seed
    assert [m["content"] for m in two.new_messages] == ["more"]
    asked = last_request(stack)
    assert asked["token_ids"] == [*one.new_prompt_ids, *one.sampled_ids, *two.new_prompt_ids]
    assert asked["sampling_params"] == {
        "temperature": 0.7, "max_tokens": 9, "logprobs": 0, "detokenize": False, "seed": two.seed,
    }  # fmt: skip
    assert stack.end(session) == captured


def test_sessions_are_refused_by_token_timeline_and_served_model(stack: PolicyStack):
    opened = stack.opening()
    assert stack.post_session(opened, "nobody").status_code == 401
    stale = stack.post_session(stack.opening(timeline=2))
    assert (stale.status_code, stale.json()["error"]["code"]) == (409, "stale_timeline")
    other = stack.post_session(stack.opening(serve_id="serve_9"))
    assert (other.status_code, other.json()["error"]["code"]) == (409, "conflict")
    assert stack.http.post("/sessions", headers={"Authorization": f"Bearer {WORKER}"}).status_code == 400
    assert stack.post_session(opened).status_code == 201
    assert stack.post_session(opened).json()["path"] == f"/rollout/{opened.session_id}/v1"
    assert stack.post_session(opened).status_code == 200
    changed = opened.model_copy(update={"attempt": 2})
    assert stack.post_session(changed).status_code == 409


def test_calls_for_unknown_ended_and_stale_sessions_are_refused(stack: PolicyStack):
    assert stack.chat("trace_unknown", HI).status_code == 404
    ended = stack.open()
    stack.end(ended)
    assert stack.chat(ended, HI).status_code == 410
    assert stack.post_session(stack.opening(session_id=ended)).status_code == 410
    stale = stack.open()
    stack.redis.set(names.timeline(JOB), 2)
    assert stack.chat(stale, HI).status_code == 409
    unknown_end = stack.http.post("/sessions/x/end", headers={"Authorization": f"Bearer {WORKER}"})
    assert unknown_end.status_code == 404


@pytest.mark.parametrize(
    "url",
    [
        "/rollout/{}/v1/chat/completions",
        "/rollout/{}/v1/v1/chat/completions",
        "/v1/chat/completions?cid={}",
        "/v1/chat/completions?cid={}/v1/chat/completions",
    ],
)
def test_every_form_of_the_url_reaches_the_session(stack: PolicyStack, url: str):
    session = stack.open()
    assert stack.http.post(url.format(session), json={"messages": HI}).status_code == 200
    models = stack.http.get(f"/rollout/{session}/v1/models").json()
    assert [model["id"] for model in models["data"]] == ["serve_1"]
    assert len(stack.end(session).calls) == 1


def test_a_prompt_that_does_not_fit_is_the_policys_fault(stack: PolicyStack):
    session = stack.open()
    reply = stack.chat(session, [{"role": "user", "content": "x" * 600}])
    assert reply.status_code == 400
    assert reply.json()["error"]["code"] == "context_length_exceeded"
    [call] = stack.end(session).calls
    assert call.error is not None
    assert call.error.is_policy_fault
    assert len(call.new_prompt_ids) > 600


@pytest.mark.parametrize(
    ("mode", "status", "is_policy_fault"),
    [("500", 503, False), ("400", 400, True), ("nan", 503, False), ("short", 503, False)],
)
def test_what_the_engine_gets_wrong_is_recorded_and_never_padded(
    stack: PolicyStack, mode: str, status: int, is_policy_fault: bool
):
    session = stack.open()
    set_mode(stack, mode)
    reply = stack.chat(session, HI)
    assert reply.status_code == status
    assert ("retry-after" in reply.headers) == (status == 503)
    [call] = stack.end(session).calls
    assert call.error is not None
    assert call.error.is_policy_fault == is_policy_fault
    assert len(call.sampled_ids) == len(call.sampled_logprobs) == 0
    assert call.reply is None


def test_a_cut_off_reply_continues_with_the_templates_end_of_turn(stack: PolicyStack):
    session = stack.open()
    set_mode(stack, "cut")
    assert stack.chat(session, HI).json()["choices"][0]["finish_reason"] == "length"
    stack.chat(session, [*HI, {"role": "assistant", "content": SAID}, *HI])
    _, two = stack.end(session).calls
    assert two.parent == 0
    assert two.new_prompt_ids[0] == STOP_ID


@pytest.mark.parametrize(
    "body",
    [
        *("{", "[]", "{}", '{"messages": []}', '{"messages": [1]}', '{"messages": [{}]}'),
        pytest.param("[" * 100_000, id="deep"),
        pytest.param(r'{"messages": [{"role": "user", "content": "\ud800"}]}', id="surrogate"),
    ],
)
def test_a_request_that_is_no_chat_request_is_a_400(stack: PolicyStack, body: str):
    session = stack.open()
    reply = stack.http.post(f"/rollout/{session}/v1/chat/completions", content=body)
    assert reply.status_code == 400
    assert stack.end(session).calls == ()


def test_a_streamed_answer_is_the_same_answer(stack: PolicyStack):
    session = stack.open()
    reply = stack.chat(session, HI, stream=True, stream_options={"include_usage": True})
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert SAID in reply.text
    assert reply.text.endswith("data: [DONE]\n\n")
    set_mode(stack, "500")
    assert stack.chat(session, HI, stream=True).status_code == 503
    one, two = stack.end(session).calls
    assert one.is_trainable
    assert two.error is not None


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_whose_client_left_is_kept_and_not_trained(stack: PolicyStack, stream: bool):
    session = stack.open()
    set_mode(stack, "hang")
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(
            f"{stack.url}/rollout/{session}/v1/chat/completions",
            json={"messages": HI, "stream": stream},
            timeout=0.5,
        )
    key = names.session_calls(session)
    until(lambda: stack.redis.llen(key) == 1, 10, "the call of the client that left was not captured")
    set_mode(stack, "ok")
    assert stack.chat(session, HI).status_code == 200
    one, two = stack.end(session).calls
    assert not one.is_trainable
    assert "disconnected" in str(one.untrainable_reason)
    assert len(one.new_prompt_ids) > 0
    assert two.is_trainable


def ask_in_background(stack: PolicyStack, session: str) -> tuple[threading.Thread, list[httpx.Response]]:
    replies: list[httpx.Response] = []

    def ask() -> None:
        url = f"{stack.url}/rollout/{session}/v1/chat/completions"
        replies.append(httpx.post(url, json={"messages": HI}, timeout=60))

    before = n_requests(stack)
    thread = threading.Thread(target=ask)
    thread.start()
    until(lambda: n_requests(stack) > before, 10, "the call did not reach the engine")
    return thread, replies


def test_a_retry_of_a_running_call_makes_the_earlier_untrainable(stack: PolicyStack):
    session = stack.open()
    set_mode(stack, "hang")
    threads = [ask_in_background(stack, session)[0] for _ in range(2)]
    set_mode(stack, "ok")
    for thread in threads:
        thread.join()
    stack.chat(session, HI)
    calls = stack.end(session).calls
    assert [call.is_trainable for call in calls] == [False, True, True]
    assert calls[0].untrainable_reason == "superseded by a retry (call 1)"


def test_a_retry_that_says_so_makes_an_answered_call_untrainable(stack: PolicyStack):
    session = stack.open()
    stack.chat(session, HI)
    url = f"/rollout/{session}/v1/chat/completions"
    stack.http.post(url, json={"messages": HI}, headers={"x-stainless-retry-count": "1"})
    assert [call.is_trainable for call in stack.end(session).calls] == [False, True]


def test_ending_a_session_stops_its_running_calls_and_captures_them(stack: PolicyStack):
    session = stack.open()
    set_mode(stack, "hang")
    thread, replies = ask_in_background(stack, session)
    [call] = stack.end(session).calls
    thread.join()
    assert replies[0].status_code == 503
    assert call.untrainable_reason == "the session ended before the answer"


def publish_request(stack: PolicyStack, n: int, model: Path, **changes: Any) -> PublishRequest:
    base: dict[str, Any] = {
        "serve_id": "serve_1",
        "fence": stack.claim.fence,
        "version": PolicyVersion(timeline=1, n=n),
        "weights_path": str(model),
    }
    return PublishRequest(**(base | changes))


def test_a_publish_pauses_reloads_labels_and_resumes_and_becomes_the_desired_state(
    stack: PolicyStack, model: Path
):
    before = len(control(stack))
    reply = stack.admin("publish", publish_request(stack, 1, model))
    assert reply.status_code == 200
    assert reply.json()["version"] == {"timeline": 1, "n": 1}
    pause, reload, version, resume = control(stack)[before:]
    assert (pause, version, resume) == ("pause", "version 1.1", "resume")
    assert reload.startswith(f"reload {stack.home}/reload/")  # links to the model, and its tied head
    desired = ServeSpec.model_validate_json(stack.redis.get(names.slot_desired(stack.pool, 0)))  # type: ignore[arg-type]
    assert (desired.version, desired.model_path) == (PolicyVersion(timeline=1, n=1), str(model))
    session = stack.open()
    stack.chat(session, HI)
    assert str(stack.end(session).calls[0].version_spans[0].version) == "1.1"


def test_a_call_in_flight_outlives_a_publish(stack: PolicyStack, model: Path):
    session = stack.open()
    set_mode(stack, "hang")
    thread, replies = ask_in_background(stack, session)
    assert stack.admin("publish", publish_request(stack, 2, model)).status_code == 200
    set_mode(stack, "ok")
    thread.join()
    assert replies[0].status_code == 200


def test_only_the_owner_publishes(stack: PolicyStack, model: Path, tmp_path: Path):
    fine = publish_request(stack, 1, model)
    assert stack.admin("publish", fine, WORKER).status_code == 403
    assert stack.admin("publish", fine, "nobody").status_code == 401
    fence = {"fence": stack.claim.fence - 1}
    assert stack.admin("publish", publish_request(stack, 1, model, **fence)).status_code == 409
    assert stack.admin("publish", publish_request(stack, 1, model, serve_id="x")).status_code == 409
    assert stack.admin("publish", publish_request(stack, 1, tmp_path)).status_code == 400
    assert stack.status().version == PolicyVersion(timeline=1, n=0)
    stack.redis.incr(names.slot_fence(stack.pool, 0))
    try:
        assert stack.admin("publish", fine).status_code == 409
    finally:
        stack.redis.decr(names.slot_fence(stack.pool, 0))


def test_a_probe_asks_twice_greedily(stack: PolicyStack):
    request = ProbeRequest(
        serve_id="serve_1", fence=stack.claim.fence, prompt_ids=token_ids([1, 2, 3]), n_tokens=3
    )
    assert stack.admin("probe", request, WORKER).status_code == 403
    before = n_requests(stack)
    result = stack.admin("probe", request, TRAINER).json()
    assert n_requests(stack) == before + 2
    assert result["version"] == {"timeline": 1, "n": 0}
    assert last_request(stack)["sampling_params"]["temperature"] == 0


def test_weights_that_cannot_be_read_are_refused_before_the_engine_is_touched(
    stack: PolicyStack, model: Path, tmp_path: Path
):
    broken = shutil.copytree(model, tmp_path / "broken")
    (broken / "model.safetensors").write_bytes(b"short")
    before = len(control(stack))
    reply = stack.admin("publish", publish_request(stack, 1, broken))
    assert reply.status_code == 400
    assert "cannot be read" in reply.json()["detail"]
    assert len(control(stack)) == before
    stack.claim.serve(stack.spec(broken, serve_id="serve_broken"))
    assert "cannot be read" in str(stack.wait_for(EngineState.FAILED).reason)


def test_a_failed_reload_restarts_the_engine_with_the_current_version(stack: PolicyStack, model: Path):
    set_mode(stack, "broken_reload")
    reply = stack.admin("publish", publish_request(stack, 5, model))
    assert reply.status_code == 503
    assert stack.wait_for(EngineState.READY).version == PolicyVersion(timeline=1, n=0)
    assert control(stack) == ["version 1.0"]  # a new engine, which never heard of 1.5


def test_a_new_owner_with_other_weights_swaps_in_place_and_stops_old_calls(stack: PolicyStack, model: Path):
    session = stack.open()
    set_mode(stack, "hang")
    thread, replies = ask_in_background(stack, session)
    spec = stack.spec(model, serve_id="serve_2", version=PolicyVersion(timeline=4, n=0))
    stack.serve(spec)
    thread.join()
    assert replies[0].status_code == 503
    assert control(stack)[-1] == "resume"
    assert stack.chat(session, HI).status_code == 409
    [call] = stack.end(session).calls
    assert not call.is_trainable


def engine_pid(stack: PolicyStack) -> int:
    """The process that listens behind the gateway: its only child."""
    assert stack.process is not None
    pid = stack.process.pid
    [child] = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


def test_an_engine_that_dies_is_started_again_and_calls_in_flight_fail_as_infrastructure(
    stack: PolicyStack, model: Path
):
    assert stack.admin("publish", publish_request(stack, 3, model)).status_code == 200
    session = stack.open()
    set_mode(stack, "hang")
    thread, replies = ask_in_background(stack, session)
    os.kill(engine_pid(stack), signal.SIGKILL)
    thread.join()
    assert replies[0].status_code == 503
    until(lambda: control_or_none(stack) == ["version 1.3"], 30, "no new engine with the published version")
    stack.wait_for(EngineState.READY)
    assert stack.chat(session, HI).status_code == 200
    one, two = stack.end(session).calls
    assert one.error is not None
    assert not one.error.is_policy_fault
    assert str(two.version_spans[0].version) == "1.3"


def control_or_none(stack: PolicyStack) -> list[str] | None:
    try:
        return control(stack)
    except httpx.TransportError:
        return None


def test_an_engine_that_cannot_start_is_a_reason_not_a_hang(stack: PolicyStack, model: Path):
    stack.claim.serve(stack.spec(model, engine_args=("--broken",)))
    status = stack.wait_for(EngineState.FAILED)
    assert "no such quantisation" in str(status.reason)
    refused = stack.post_session(stack.opening())
    assert refused.status_code == 503
    assert "no such quantisation" in refused.json()["detail"]


def test_a_gateway_that_starts_anew_knows_its_sessions(valkey_server: str, model: Path, tmp_path: Path):
    stack = PolicyStack(tmp_path, valkey_server, "tests.fakes.gateway")
    try:
        stack.start()
        assert stack.http.get("/ready").json() == {"status": "ready", "engine": "idle"}
        assert stack.post_session(stack.opening()).status_code == 503
        stack.serve(stack.spec(model))
        session = stack.open()
        stack.chat(session, HI)
        engine = engine_pid(stack)
        stack.stop(signal.SIGKILL)
        until(lambda: not Path(f"/proc/{engine}").exists(), 10, "the engine outlived its gateway")
        stack.start()
        stack.wait_for(EngineState.READY)
        stack.chat(session, [*HI, {"role": "assistant", "content": SAID}, *HI])
        one, two = stack.end(session).calls
        assert (two.index, two.parent) == (1, 0)
        asked = last_request(stack)["token_ids"]
        assert asked == [*one.new_prompt_ids, *one.sampled_ids, *two.new_prompt_ids]
        engine = engine_pid(stack)
        stack.stop(signal.SIGTERM)
        assert not Path(f"/proc/{engine}").exists()
        assert stack.redis.get(names.slot_status(stack.pool, 0)) is None
    finally:
        stack.close()
