"""A task app whose answers can be made bad. It plays one turn over the inference URL before it answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

KEY = "environment-key-0123456789"


def good_answer(run_id: str, inference_url: str = "") -> dict[str, Any]:
    """A minimal answer of the contract's older shape (no field of ours): reward 1."""
    return {
        "run_id": run_id,
        "trajectories": [
            {
                "env_id": "fake",
                "policy_id": "policy",
                "steps": [{"obs": {"text": "go"}, "tool_calls": [], "reward": 1.0, "done": True, "info": {}}],
                "length": 1,
                "inference_url": inference_url,
            }
        ],
        "branches": {},
        "metrics": {"episode_returns": [1.0], "mean_return": 1.0, "num_steps": 1},
    }


Bad = Callable[[dict[str, Any]], Response]


def _changed(**metrics: Any) -> Bad:
    def answer(body: dict[str, Any]) -> Response:
        body["metrics"] |= {"episode_returns": list(metrics.values()), **metrics}
        return Response(json.dumps(body), media_type="application/json")

    return answer


def _missing(body: dict[str, Any]) -> Response:
    del body["metrics"], body["trajectories"][0]["steps"][0]["reward"]
    return JSONResponse(body)


def _swallowed(body: dict[str, Any]) -> Response:
    body["metrics"] = {"episode_returns": [-1.0], "mean_return": -1.0, "num_steps": 1}
    body["trajectories"][0]["steps"][0]["info"] = {"error": "All connection attempts failed"}
    return JSONResponse(body)


async def _dripping() -> AsyncIterator[bytes]:
    while True:
        yield b" "
        await asyncio.sleep(0.05)


def _nested(depth: int) -> Bad:
    inner = "[" * depth + "]" * depth
    return lambda body: Response(
        json.dumps(body | {"metrics": {"mean_return": 1.0, "details": {"x": 0}}}).replace(
            '"x": 0', f'"x": {inner}'
        ),
        media_type="application/json",
    )


BAD: dict[str, Bad] = {
    "ok": JSONResponse,
    "401": lambda _: JSONResponse({"detail": f"wrong key {KEY}"}, status_code=401),
    "500": lambda _: Response(f"boom {KEY}", status_code=500),
    "malformed": lambda _: Response(b'{"run_id": ', media_type="application/json"),
    "a list": lambda body: JSONResponse([body]),
    "nan": _changed(mean_return=float("nan")),
    "inf": _changed(mean_return=float("inf")),
    "text reward": _changed(mean_return="1.0"),
    "missing": _missing,
    "wrong run_id": lambda body: JSONResponse(body | {"run_id": "trace_of_another"}),
    "swallowed": _swallowed,
    "surrogate": lambda body: Response(json.dumps(body | {"x": "\ud800"}), media_type="application/json"),
    "deep": _nested(400),
    "writable but not readable": _nested(220),
    "dripping": lambda _: StreamingResponse(_dripping(), media_type="application/json"),
}
"""Kinds of answer by name; `slow`, `no call` and `reset` are done before one is made."""


@dataclass
class FakeTaskApp:
    kind: str = "ok"
    n_rollouts: int = 0
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.app = Starlette(
            routes=[
                Route("/task_info", self._task_info),
                Route("/rollout", self._rollout, methods=["POST"]),
            ]
        )

    async def _task_info(self, request: Request) -> Response:
        return JSONResponse({"task": {"id": "fake", "version": "7", "name": "fake"}, "environment": "fake"})

    async def _rollout(self, request: Request) -> Response:
        body = json.loads(await request.body())
        self.n_rollouts += 1
        self.requests.append(body)
        self.headers.append(dict(request.headers))
        url = body["policy"]["config"]["inference_url"]
        if self.kind == "slow":
            await asyncio.sleep(30)
        if self.kind not in ("no call", "swallowed"):
            async with httpx.AsyncClient(trust_env=False) as http:
                messages = [{"role": "user", "content": "go"}]
                await http.post(f"{url}/chat/completions", json={"messages": messages}, timeout=30)
        return BAD.get(self.kind, JSONResponse)(good_answer(body["run_id"], url))
