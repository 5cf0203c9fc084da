"""The gateway over a real vLLM engine: tokens, logprobs, versions. One engine for the whole module."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from safetensors.numpy import load_file, save_file
from tests.fakes.policy_stack import JOB, WORKER, PolicyStack, until
from tests.fakes.tiny_model import CHATML, CHATML_TOOLS, make_tiny_model

from examples.chatml import TEMPLATE as DEMO_TEMPLATE
from headrace.contracts.base import token_ids
from headrace.contracts.policy import (
    Call,
    CapturedSession,
    EngineState,
    PolicyVersion,
    ProbeRequest,
    ProbeResult,
    PublishRequest,
    Sampling,
)
from headrace.queue import names
from headrace.render import Renderer

pytestmark = [pytest.mark.integration, pytest.mark.engine]
TOLERANCE = 1e-4
"""Largest difference between the engine's log-probability and an fp32 forward pass."""
HI = [{"role": "user", "content": "hi"}]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "go",
            "description": "Walk.",
            "parameters": {"type": "object", "properties": {"to": {"type": "string"}}},
        },
    }
]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three models of one architecture with different weights; the last never samples a stop token."""
    folder = tmp_path_factory.mktemp("models")
    made = [make_tiny_model(folder / str(seed), seed, chat_template=CHATML_TOOLS) for seed in (0, 1, 2)]
    never_stop(made[2])
    return made


def never_stop(model: Path) -> None:
    """Give all tokens a common direction, and the stop tokens its opposite."""
    file = model / "model.safetensors"
    weights = load_file(file)
    embeddings = weights["model.embed_tokens.weight"]
    embeddings[:, 0] += 0.5
    embeddings[list(Renderer.load(model).eos_ids), 0] -= 1.0
    save_file(weights, file, metadata={"format": "pt"})


@pytest.fixture(scope="module")
def running(
    _valkey_server: str, models: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PolicyStack]:
    stack = PolicyStack(tmp_path_factory.mktemp("home"), _valkey_server, "headrace_policy")
    stack.start()
    # The renderer test sends templates of its own.
    stack.serve(stack.spec(models[0], engine_args=("--trust-request-chat-template",)), timeout_s=600)
    yield stack
    stack.close()


@pytest.fixture
def stack(running: PolicyStack, models: list[Path]) -> PolicyStack:
    """The module's engine, serving the first model as version 1.0."""
    running.redis.set(names.timeline(JOB), 1)
    running.serve(running.spec(models[0], engine_args=("--trust-request-chat-template",)))
    return running


@pytest.fixture(scope="module")
def forward(models: list[Path]) -> Any:
    """(model number, token ids) -> log-probabilities of each next token, float32, on one thread."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.set_num_threads(1)
    loaded = [
        transformers.AutoModelForCausalLM.from_pretrained(m, dtype=torch.float32).eval() for m in models
    ]

    def logprobs(number: int, ids: list[int], temperature: float = 1.0) -> Any:
        with torch.no_grad():
            logits = loaded[number](torch.tensor([ids])).logits[0]
        return torch.log_softmax(logits / temperature, dim=-1)

    return logprobs


def prompt_of(calls: tuple[Call, ...], call: Call) -> list[int]:
    """The whole prompt of a call, put together along its parents."""
    if call.parent is None:
        return list(call.new_prompt_ids)
    parent = calls[call.parent]
    return [*prompt_of(calls, parent), *parent.sampled_ids, *call.new_prompt_ids]


def largest_mismatch(captured: CapturedSession, forward: Any, number: int = 0) -> float:
    worst = 0.0
    for call in captured.calls:
        prompt = prompt_of(captured.calls, call)
        scored = forward(number, [*prompt, *call.sampled_ids], call.temperature)
        for position, (token, logprob) in enumerate(
            zip(call.sampled_ids, call.sampled_logprobs, strict=True)
        ):
            worst = max(worst, abs(float(scored[len(prompt) + position - 1, token]) - logprob))
    return worst


def random_conversation(draw: random.Random, with_tools: bool) -> list[dict[str, Any]]:
    def text() -> str:
        letters = "abc user system assistant tool\n\t {}<|>é😀\"'\\"
        return "".join(draw.choice(letters) for _ in range(draw.randrange(20)))

    messages: list[dict[str, Any]] = [{"role": "system", "content": text()}] if draw.random() < 0.5 else []
    for _ in range(draw.randrange(1, 4)):
        messages.append({"role": "user", "content": text()})
        if with_tools and draw.random() < 0.5:
            arguments = json.dumps({"to": text(), "n": draw.randrange(9)})
            function = {"name": "go", "arguments": arguments}
            call = {"id": "c1", "type": "function", "function": function}
            messages.append(
                {"role": "assistant", "content": draw.choice([None, text()]), "tool_calls": [call]}
            )
            messages.append({"role": "tool", "tool_call_id": "c1", "content": text()})
        else:
            messages.append({"role": "assistant", "content": text()})
    return [*messages, {"role": "user", "content": text()}]


@pytest.mark.parametrize(
    ("template", "with_tools"),
    [(CHATML, False), (DEMO_TEMPLATE, False), (CHATML_TOOLS, True)],
    ids=["chatml", "demo", "tools"],
)
def test_our_renderer_and_the_engines_give_the_same_tokens(
    stack: PolicyStack, tmp_path: Path, template: str, with_tools: bool
):
    renderer = Renderer.load(make_tiny_model(tmp_path, chat_template=template))
    draw = random.Random(0)
    for _ in range(15):
        messages = random_conversation(draw, with_tools)
        body = {"model": "policy", "messages": messages, "chat_template": template, "max_tokens": 1}
        reply = httpx.post(f"{stack.engine_url}/v1/chat/completions/render", json=body)
        assert reply.status_code == 200, reply.text
        ours = renderer.encode(renderer.render_text(messages, None, add_generation_prompt=True))
        assert ours == reply.json()["token_ids"]


def play(stack: PolicyStack, n_turns: int, **sampling: Any) -> CapturedSession:
    """An episode of `n_turns` in one session."""
    session = stack.open(sampling=Sampling(**sampling))
    messages: list[dict[str, Any]] = []
    for turn in range(n_turns):
        messages.append({"role": "user", "content": f"turn {turn}"})
        reply = stack.chat(session, messages)
        assert reply.status_code == 200, reply.text
        messages.append(reply.json()["choices"][0]["message"])
    return stack.end(session)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_an_episode_is_one_sequence_scored_as_the_trainer_scores_it(
    stack: PolicyStack, forward: Any, temperature: float
):
    captured = play(stack, 4, temperature=temperature, max_tokens=20, seed=5)
    assert [call.parent for call in captured.calls] == [None, 0, 1, 2]
    assert {str(span.version) for call in captured.calls for span in call.version_spans} == {"1.0"}
    assert sum(len(call.sampled_ids) for call in captured.calls) > 40
    assert largest_mismatch(captured, forward) < TOLERANCE


def test_equal_seeds_give_equal_tokens_and_free_calls_differ(stack: PolicyStack):
    seeded = [play(stack, 2, max_tokens=16, seed=5) for _ in range(2)]
    assert [c.sampled_ids for c in seeded[0].calls] == [c.sampled_ids for c in seeded[1].calls]
    free = [play(stack, 1, max_tokens=16) for _ in range(2)]
    assert free[0].calls[0].sampled_ids != free[1].calls[0].sampled_ids


def publish(stack: PolicyStack, n: int, model: Path) -> httpx.Response:
    request = PublishRequest(
        serve_id="serve_1",
        fence=stack.claim.fence,
        version=PolicyVersion(timeline=1, n=n),
        weights_path=str(model),
    )
    return stack.admin("publish", request)


def probe(stack: PolicyStack) -> ProbeResult:
    request = ProbeRequest(
        serve_id="serve_1",
        fence=stack.claim.fence,
        prompt_ids=token_ids([(7 * i) % 250 for i in range(300)]),  # more than two blocks of the cache
        n_tokens=8,
    )
    reply = stack.admin("probe", request)
    assert reply.status_code == 200, reply.text
    return ProbeResult.model_validate_json(reply.text)


def probe_gap(result: ProbeResult, forward: Any, number: int) -> float:
    """max |engine - forward pass of model `number`| over both continuations."""
    prompt = [(7 * i) % 250 for i in range(300)]
    scored = forward(number, [*prompt, *result.sampled_ids])
    rows = zip(result.sampled_ids, result.cold_logprobs, result.cached_logprobs, strict=True)
    worst = 0.0
    for position, (token, cold, cached) in enumerate(rows):
        exact = float(scored[len(prompt) + position - 1, token])
        worst = max(worst, abs(exact - cold), abs(exact - cached))
    return worst


def test_the_probe_proves_a_publish_and_goes_red_when_the_reload_is_skipped(
    stack: PolicyStack, models: list[Path], forward: Any
):
    before = probe(stack)
    assert before.version == PolicyVersion(timeline=1, n=0)
    assert probe_gap(before, forward, 0) < TOLERANCE
    assert publish(stack, 1, models[1]).status_code == 200
    after = probe(stack)
    assert after.version == PolicyVersion(timeline=1, n=1)
    assert probe_gap(after, forward, 1) < TOLERANCE
    # The next version is only a new label: its weights are the first model's, still unloaded.
    httpx.post(f"{stack.engine_url}/update_weight_version", json={"new_version": "1.2"})
    skipped = probe(stack)
    assert skipped.version == PolicyVersion(timeline=1, n=2)
    assert probe_gap(skipped, forward, 0) > 10 * TOLERANCE


def n_generated(stack: PolicyStack) -> float:
    """Tokens that the engine has sampled since its start."""
    lines = stack.http.get(f"{stack.engine_url}/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("vllm:generation_tokens_total"))


def test_a_swap_with_32_calls_in_flight_answers_all_with_exact_spans(
    stack: PolicyStack, models: list[Path], forward: Any
):
    assert publish(stack, 1, models[2]).status_code == 200
    sessions = [stack.open(sampling=Sampling(seed=index if index % 2 else None)) for index in range(32)]
    body = {"messages": HI, "max_tokens": 400}

    def ask(session: str) -> int:
        return stack.http.post(f"/rollout/{session}/v1/chat/completions", json=body).status_code

    # Held back until all 32 are in, so that none has ended before the last one starts.
    stack.http.post(f"{stack.engine_url}/pause?mode=keep")
    with ThreadPoolExecutor(32) as pool:
        asked = [pool.submit(ask, session) for session in sessions]
        until(lambda: stack.status().n_in_flight == 32, 60, "not all calls are in flight")
        before = n_generated(stack)
        stack.http.post(f"{stack.engine_url}/resume")
        until(lambda: n_generated(stack) > before, 60, "the engine generates nothing")
        reply = publish(stack, 2, models[1])
        assert {future.result() for future in asked} == {200}
    assert reply.status_code == 200
    calls = [stack.end(session).calls[0] for session in sessions]
    crossing = [call for call in calls if len(call.version_spans) == 2]
    assert len(crossing) == 32
    for call in crossing[:4]:
        first, second = call.version_spans
        assert (str(first.version), str(second.version)) == ("1.1", "1.2")
        # Up to the swap the tokens are those of the first weights, exactly; behind it they are not.
        prompt = list(call.new_prompt_ids)
        scored = forward(2, [*prompt, *call.sampled_ids])
        for position in range(first.end):
            exact = float(scored[len(prompt) + position - 1, call.sampled_ids[position]])
            assert abs(exact - call.sampled_logprobs[position]) < TOLERANCE
        changed = scored[len(prompt) + first.end - 1, call.sampled_ids[first.end]]
        assert abs(float(changed) - call.sampled_logprobs[first.end]) > TOLERANCE


def test_a_tool_call_is_parsed_by_the_engines_parser(stack: PolicyStack, models: list[Path]):
    """A random model calls no tool, so the parser is asked about a reply that we write."""
    text = 'sure\n<tool_call>\n{"name": "go", "arguments": {"to": "north"}}\n</tool_call>'
    renderer = Renderer.load(models[0])
    body = {
        "model": "policy",
        "generate_response": {
            "choices": [{"index": 0, "token_ids": renderer.encode(text), "finish_reason": "stop"}]
        },
        "chat_request": {"model": "policy", "messages": HI, "tools": TOOLS, "tool_choice": "auto"},
    }
    reply = httpx.post(f"{stack.engine_url}/v1/chat/completions/derender", json=body).json()
    [call] = reply["choices"][0]["message"]["tool_calls"]
    assert call["function"]["name"] == "go"
    assert json.loads(call["function"]["arguments"]) == {"to": "north"}


@pytest.mark.parametrize("tool_choice", ["auto", "none", {"type": "function", "function": {"name": "go"}}])
def test_tools_stay_in_the_prompt_and_a_forced_choice_is_not_decoded_under_a_grammar(
    stack: PolicyStack, forward: Any, tool_choice: Any
):
    session = stack.open(sampling=Sampling(max_tokens=12, seed=1))
    reply = stack.chat(session, HI, tools=TOOLS, tool_choice=tool_choice)
    assert reply.status_code == 200, reply.text
    assert isinstance(reply.json()["choices"][0]["message"]["content"], str)
    captured = stack.end(session)
    [call] = captured.calls
    assert ("tool_choice" in call.overridden) == isinstance(tool_choice, dict)
    assert call.tools == tuple(TOOLS)
    assert largest_mismatch(captured, forward) < TOLERANCE


def test_greedy_evaluation_scores_at_temperature_one(stack: PolicyStack, forward: Any):
    session = stack.open(mode="eval", sampling=Sampling(temperature=0, max_tokens=6))
    reply = stack.chat(session, HI, temperature=1.0, logprobs=True).json()
    [call] = stack.end(session).calls
    scored = forward(0, [*call.new_prompt_ids, *call.sampled_ids])
    for position, token in enumerate(call.sampled_ids):
        row = scored[len(call.new_prompt_ids) + position - 1]
        assert int(row.argmax()) == token
        assert abs(float(row[token]) - call.sampled_logprobs[position]) < TOLERANCE
    assert [e["logprob"] for e in reply["choices"][0]["logprobs"]["content"]] == list(call.sampled_logprobs)


def test_a_stop_text_ends_the_reply_and_its_tokens_are_kept(stack: PolicyStack):
    session = stack.open(sampling=Sampling(max_tokens=60, seed=2))
    free = stack.chat(session, HI).json()["choices"][0]["message"]["content"]
    stop = next(letter for letter in free if letter.isascii() and letter.isprintable())
    again = stack.chat(stack.open(sampling=Sampling(max_tokens=60, seed=2)), HI, stop=[stop]).json()
    assert again["choices"][0]["message"]["content"] == free.partition(stop)[0]
    assert again["choices"][0]["finish_reason"] == "stop"


def test_the_openai_stream_reads_like_a_whole_answer(stack: PolicyStack):
    session = stack.open(sampling=Sampling(max_tokens=30, seed=4))
    whole = stack.chat(session, HI).json()["choices"][0]["message"]["content"]
    streamed = ""
    other = stack.open(sampling=Sampling(max_tokens=30, seed=4))
    url = f"/rollout/{other}/v1/chat/completions"
    with stack.http.stream("POST", url, json={"messages": HI, "stream": True}) as reply:
        for line in reply.iter_lines():
            if line.startswith("data: {"):
                [choice] = json.loads(line.removeprefix("data: "))["choices"]
                streamed += choice["delta"].get("content") or ""
    assert streamed == whole


def test_a_worker_cannot_publish(stack: PolicyStack, models: list[Path]):
    request = PublishRequest(
        serve_id="serve_1",
        fence=stack.claim.fence,
        version=PolicyVersion(timeline=1, n=9),
        weights_path=str(models[1]),
    )
    assert stack.admin("publish", request, WORKER).status_code == 403
    assert stack.status().version == PolicyVersion(timeline=1, n=0)


def test_a_killed_engine_comes_back_with_the_published_weights(
    stack: PolicyStack, models: list[Path], forward: Any
):
    """Last in the module, since it costs a second engine start."""
    assert publish(stack, 1, models[1]).status_code == 200
    assert stack.process is not None
    pid = stack.process.pid
    [child] = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    os.kill(int(child), signal.SIGKILL)
    status = stack.wait_for(EngineState.STARTING, 30)
    assert "died" in str(status.reason)
    assert stack.post_session(stack.opening()).status_code == 503
    status = stack.wait_for(EngineState.READY, 600)
    assert status.version == PolicyVersion(timeline=1, n=1)
    captured = play(stack, 2, max_tokens=10)
    assert largest_mismatch(captured, forward, number=1) < TOLERANCE
    assert probe_gap(probe(stack), forward, 1) < TOLERANCE
