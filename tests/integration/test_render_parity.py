"""Our renderer beside the engine's own renderer and parsers, in its process that has no engine."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import aiohttp
import httpx
import pytest
from tests.conftest import free_port
from tests.fakes.chat_templates import STOPS, template_model, template_of, template_renderer
from tests.fakes.conversations import GO, LOOK, REQUESTS, said, tool, user
from tests.fakes.episode import Episode
from tests.fakes.policy_stack import until

from headrace.errors import BadRequest
from headrace.render import Renderer
from headrace.render.options import PromptOptions
from headrace.render.splice import Split
from headrace_policy.engine import environment
from headrace_policy.engine_client import EngineClient

pytestmark = [pytest.mark.integration, pytest.mark.engine]
TOOLS = [GO, LOOK]
HI = user("hi")
CALL = '<tool_call>\n{"name":"go", "arguments":{"to":"north"}}\n</tool_call>'
THOUGHT = "<think>\nhm\n</think>\n\n"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The engine's render and derender routes, with the parsers of Qwen3."""
    folder = tmp_path_factory.mktemp("served")
    port, log = free_port(), folder / "log"
    line = [
        *(sys.executable, "-m", "vllm.entrypoints.launchers.render.entry"),
        *("--model", str(template_model(folder / "model", "qwen3")), "--served-model-name", "policy"),
        *("--host", "127.0.0.1", "--port", str(port), "--dtype", "float32"),
        *("--trust-request-chat-template", "--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
        *("--reasoning-parser", "qwen3", "--uvicorn-log-level", "warning"),
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(line, env=environment(os.environ, "cpu"), stdout=output, stderr=output)
    address = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        assert process.poll() is None, log.read_text()[-2000:]
        try:
            return httpx.get(f"{address}/health").status_code == 200
        except httpx.TransportError:
            return False

    try:
        until(answers, 240, "the engine's renderer does not start")
        yield address
    finally:
        process.terminate()
        process.wait(timeout=30)


@pytest.fixture(scope="module")
def renderers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Renderer]:
    folder = tmp_path_factory.mktemp("models")
    return {name: template_renderer(folder / name, name) for name in STOPS}


def theirs(url: str, name: str, request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    body = {"model": "policy", "max_tokens": 1, "chat_template": template_of(name), **request}
    reply = httpx.post(f"{url}/v1/chat/completions/render", json=body)
    return reply.status_code, reply.json()


def prompt_of(renderer: Renderer, request: dict[str, Any]) -> str:
    return renderer.prompt_text(request["messages"], request.get("tools"), PromptOptions.parse(request))


@pytest.mark.parametrize("name", STOPS)
def test_every_kind_of_request_gives_the_tokens_that_the_engine_gives_or_is_refused_in_its_words(
    url: str, renderers: dict[str, Renderer], name: str
):
    renderer = renderers[name]
    n_given = 0
    for kind, request in REQUESTS.items():
        status, answer = theirs(url, name, request)
        if status != 200:
            with pytest.raises(BadRequest, match=re.escape(answer["error"]["message"])):
                prompt_of(renderer, request)
            continue
        given, text = answer["token_ids"], prompt_of(renderer, request)
        assert renderer.encode(text) == given, (kind, text, renderer.decode(given))
        n_given += 1
    assert n_given >= 48


def derender(url: str, renderer: Renderer, episode: Episode, sampled: str, **request: Any) -> dict[str, Any]:
    """The message that the engine's parsers read from a sampled text, as the gateway asks for it."""
    chat = {"model": "policy", "messages": [user("")], "tools": TOOLS, "tool_choice": "auto", **request}

    async def ask() -> dict[str, Any]:
        async with aiohttp.ClientSession() as http:
            prompt = episode.prompt.token_ids if episode.prompts else [0]
            return await EngineClient(url, http).derender(prompt, renderer.encode(sampled), chat, 60)

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("sampled", "is_cut", "expected"),
    [
        (f"{THOUGHT}yes", False, {"content": "yes", "reasoning": "hm"}),
        (f"{THOUGHT}{CALL}{CALL}", False, {"content": None, "reasoning": "hm"}),
        (f"{THOUGHT}sure\n{CALL}", False, {"content": "sure\n", "reasoning": "hm"}),
        ("<think>\nhm", True, {"content": None, "reasoning": "hm"}),
    ],
    ids=["thinking", "parallel calls", "call with text", "cut in its thought"],
)
def test_what_the_engines_parsers_read_comes_back_and_the_sequence_goes_on(
    url: str, renderers: dict[str, Renderer], sampled: str, is_cut: bool, expected: dict[str, Any]
):
    renderer = renderers["qwen3"]
    for history in ("exact", "template"):
        episode = Episode(renderer, history)
        message = derender(url, renderer, episode, sampled)
        calls = message.get("tool_calls") or []
        assert (message["content"] or "").strip() == (expected["content"] or "").strip()
        assert message["reasoning"].strip() == expected["reasoning"]
        assert len(calls) == sampled.count("<tool_call>")
        reply = said(message["content"], tool_calls=calls, reasoning=message["reasoning"])
        episode.ask([HI], sampled, tools=TOOLS, is_cut=is_cut, reply=reply)
        answers = [tool(f"w{number}", number) for number in range(len(calls))]
        messages = [HI, reply, *answers, user("b")]
        episode.ask(messages, "x", tools=TOOLS)
        if history == "exact":
            assert (episode.prompt.parent, episode.prompt.split) == (0, None)
            assert sampled + ("" if is_cut else "<|im_end|>") in episode.prompt_text()
        else:
            assert episode.prompt.split is Split.TEMPLATE_HISTORY
            status, answer = theirs(url, "qwen3", {"messages": messages, "tools": TOOLS})
            assert (status, answer["token_ids"]) == (200, list(episode.prompt.token_ids))


def test_a_reply_without_thinking_is_content_where_the_prompt_switched_thinking_off(
    url: str, renderers: dict[str, Renderer]
):
    renderer = renderers["qwen3"]
    switched_off = {"enable_thinking": False}
    message = derender(url, renderer, Episode(renderer), "yes", chat_template_kwargs=switched_off)
    assert (message["content"], message.get("reasoning")) == ("yes", None)
