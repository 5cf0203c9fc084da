"""The gateway under the templates of Qwen3 and Llama 3: thinking, tools, refusals, streams, a restart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.fakes.chat_templates import template_model
from tests.fakes.conversations import GO, called, tool, user
from tests.fakes.policy_stack import JOB, PolicyStack
from tests.fakes.sse import accumulated

from headrace.contracts.policy import Call, Sampling
from headrace.queue import names
from headrace.render import Renderer

pytestmark = pytest.mark.integration
HI = user("hi")
TWO_CALLS = [HI, called(("go", {"to": "north"}), ("go", {"to": "north"})), tool("w"), tool("v", 1)]
OFF = {"enable_thinking": False}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {name: template_model(folder / name, name) for name in ("qwen3", "llama3")}


@pytest.fixture(scope="module")
def running(_valkey_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PolicyStack]:
    stack = PolicyStack(tmp_path_factory.mktemp("home"), _valkey_server, "tests.fakes.gateway")
    stack.start()
    yield stack
    stack.close()


def serve(stack: PolicyStack, models: dict[str, Path], name: str) -> Renderer:
    stack.redis.set(names.timeline(JOB), 1)
    spec = stack.spec(models[name], serve_id=f"serve_{name}", engine_args=("--reasoning-parser", "qwen3"))
    stack.serve(spec.model_copy(update={"max_model_len": 4096}))
    return Renderer.load(models[name])


def script(stack: PolicyStack, renderer: Renderer, n_replies: int) -> None:
    """Make the engine's next replies ones that its parsers read as a thought and two tool calls."""
    ids = [*renderer.encode("two calls"), renderer.eos_ids[0]]
    message = {**TWO_CALLS[1], "reasoning": "hm " * 40}
    reply = {"token_ids": ids, "logprobs": [-1.0] * len(ids), "message": message}
    httpx.post(f"{stack.engine_url}/fake", json={"replies": [reply] * n_replies})


def opened(stack: PolicyStack, name: str, **sampling: Any) -> str:
    return stack.open(serve_id=f"serve_{name}", sampling=Sampling(**sampling))


def prompt_text(renderer: Renderer, call: Call) -> str:
    return renderer.decode(list(call.new_prompt_ids))


def test_thinking_is_switched_off_by_the_request_over_a_restart_too(
    running: PolicyStack, models: dict[str, Path]
):
    renderer = serve(running, models, "qwen3")
    session = opened(running, "qwen3")
    first = running.chat(session, [HI], chat_template_kwargs=OFF).json()["choices"][0]["message"]
    running.stop()
    running.start()
    serve(running, models, "qwen3")
    messages = [HI, first, user("b")]
    assert running.chat(session, messages, chat_template_kwargs=OFF).status_code == 200
    assert running.chat(session, messages).status_code == 200
    one, two, three = running.end(session).calls
    assert prompt_text(renderer, one).endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert (two.parent, three.parent) == (0, 0)
    assert prompt_text(renderer, two).endswith("assistant\n<think>\n\n</think>\n\n")
    assert prompt_text(renderer, three).endswith("assistant\n")
    assert (two.template_variables, three.template_variables) == (OFF, {})
    asked = httpx.get(f"{running.engine_url}/fake").json()["derendered"]
    with_it, without = (body["chat_request"] for body in asked[-2:])
    assert with_it["chat_template_kwargs"] == OFF
    assert "chat_template_kwargs" not in without


def test_a_stream_with_tool_calls_and_thinking_adds_up_to_the_whole_answer(
    running: PolicyStack, models: dict[str, Path]
):
    script(running, serve(running, models, "qwen3"), 2)
    session = opened(running, "qwen3")
    body: dict[str, Any] = {"tools": [GO], "stream_options": {"include_usage": True}}
    whole = running.chat(session, [HI], tools=[GO]).json()
    reply = running.chat(session, [HI], stream=True, **body)
    assert reply.headers["content-type"].startswith("text/event-stream")
    message, chunks = accumulated(reply.text)
    assert message == whole["choices"][0]["message"]
    assert len(message["tool_calls"]) == 2
    assert chunks[-1]["usage"] == whole["usage"]
    assert chunks[-2]["choices"][0]["finish_reason"] == "tool_calls"
    running.chat(session, TWO_CALLS, tools=[GO])
    *_, last = running.end(session).calls
    assert (last.parent, last.split_reason) == (1, None)


def test_a_refusal_by_the_template_is_a_400_and_the_policys_fault_where_its_reply_led_to_it(
    running: PolicyStack, models: dict[str, Path]
):
    script(running, serve(running, models, "llama3"), 1)
    session = opened(running, "llama3")
    before = running.chat(session, TWO_CALLS, tools=[GO])
    running.chat(session, [HI], tools=[GO])
    after = running.chat(session, TWO_CALLS, tools=[GO])
    for refused in (before, after):
        assert refused.status_code == 400
        assert refused.json()["error"]["code"] == "chat_template_refused"
        assert "only supports single tool-calls at once" in refused.json()["error"]["message"]
    agents, _, policys = running.end(session).calls
    assert agents.error is not None
    assert not agents.error.is_policy_fault
    assert policys.error is not None
    assert policys.error.is_policy_fault


@pytest.mark.parametrize(
    "body",
    [
        {"chat_template_kwargs": "x"},
        {"chat_template_kwargs": {"tools": []}},
        {"tools": [{"type": "function"}]},
        {"documents": [1]},
    ],
    ids=str,
)
def test_options_of_the_wrong_shape_are_a_400(
    running: PolicyStack, models: dict[str, Path], body: dict[str, Any]
):
    serve(running, models, "qwen3")
    reply = running.chat(opened(running, "qwen3"), [HI], **body)
    assert (reply.status_code, reply.json()["error"]["type"]) == (400, "invalid_request_error")


def test_the_templates_own_history_counts_why_it_starts_anew(running: PolicyStack, models: dict[str, Path]):
    renderer = serve(running, models, "qwen3")
    script(running, renderer, 1)
    session = opened(running, "qwen3", history="template")
    running.chat(session, [HI], tools=[GO])
    running.chat(session, [*TWO_CALLS, user("b")], tools=[GO])
    _, two = running.end(session).calls
    assert (two.parent, two.split_reason) == (None, "template_history")
    assert prompt_text(renderer, two) == renderer.render_text([*TWO_CALLS, user("b")], [GO], True)
