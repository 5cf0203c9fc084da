"""Stands in for a vLLM server: the routes that the gateway uses, in a process that starts at once.

`python -m tests.fakes.engine PORT`. It samples scripted replies: the last prompt tokens decide nothing,
`POST /fake {"mode": ...}` does.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from aiohttp import web

STOP_ID = 277
PLAIN = [39, 72]


class FakeEngine:
    """`POST /fake {"replies": [{"token_ids", "logprobs", "message"} or {"status"}]}` scripts the next replies.

    Modes: `ok`, `hang` (until told otherwise), `nan`, `short` (a logprob too few), `500`, `400`, `cut`.
    """

    def __init__(self) -> None:
        self.mode, self.version, self.requests = "ok", "default", []
        self.control: list[str] = []
        self.derendered: list[Any] = []
        self.replies: list[dict[str, Any]] = []
        self.parsed: dict[tuple[int, ...], dict[str, Any]] = {}
        """What the parsers make of a scripted reply's tokens."""
        self.changed = asyncio.Event()

    async def set_mode(self, request: web.Request) -> web.Response:
        told = await request.json()
        self.mode = told.get("mode", self.mode)
        self.replies += told.get("replies", [])
        for reply in told.get("replies", []):
            if "message" in reply:
                self.parsed[tuple(reply["token_ids"][:-1])] = reply["message"]
        self.changed.set()
        self.changed = asyncio.Event()
        return web.json_response({})

    async def seen(self, _: web.Request) -> web.Response:
        return web.json_response(
            {"requests": self.requests, "control": self.control, "derendered": self.derendered}
        )

    async def health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def generate(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.requests.append(body)
        is_warm_up = body["sampling_params"]["max_tokens"] == 2
        while self.mode == "hang" and not is_warm_up:
            await self.changed.wait()
        if self.mode in ("500", "400"):
            return web.json_response({"error": {"message": "as told"}}, status=int(self.mode))
        scripted = self.replies.pop(0) if self.replies and not is_warm_up else None
        if scripted and "status" in scripted:
            return web.json_response({"error": {"message": "as told"}}, status=scripted["status"])
        choice = self._scripted(scripted) if scripted else self._choice()
        return web.json_response({"choices": [choice]})

    async def derender(self, request: web.Request) -> web.Response:
        """Finds nothing to parse but in scripted replies, so that what was sampled is the text of the reply."""
        body = await request.json()
        self.derendered.append(body)
        ids = body["generate_response"]["choices"][0]["token_ids"]
        if message := self.parsed.get(tuple(ids)):
            return web.json_response({"choices": [{"index": 0, "message": message}]})
        return web.json_response({"error": {"message": "no tool call"}}, status=400)

    def _scripted(self, reply: dict[str, Any]) -> dict[str, Any]:
        pairs = zip(reply["token_ids"], reply["logprobs"], strict=True)
        return {
            "token_ids": reply["token_ids"],
            "logprobs": {"content": [{"token_id": i, "logprob": p} for i, p in pairs]},
            "finish_reason": "stop",
            "weight_versions": [{"version": self.version, "start": 0, "end": len(reply["token_ids"])}],
        }

    def _choice(self) -> dict[str, Any]:
        ids = PLAIN if self.mode == "cut" else [*PLAIN, STOP_ID]
        logprobs: list[float] = [-0.5 - position for position in range(len(ids))]
        if self.mode == "nan":
            logprobs[1] = -9999.0
        content = [{"token_id": i, "logprob": p} for i, p in zip(ids, logprobs, strict=True)]
        return {
            "token_ids": ids,
            "logprobs": {"content": content[: -1 if self.mode == "short" else None]},
            "finish_reason": "length" if self.mode == "cut" else "stop",
            "weight_versions": [{"version": self.version, "start": 0, "end": len(ids)}],
        }

    async def update_weight_version(self, request: web.Request) -> web.Response:
        self.version = (await request.json())["new_version"]
        self.control.append(f"version {self.version}")
        return web.json_response({})

    async def collective_rpc(self, request: web.Request) -> web.Response:
        self.control.append(f"reload {(await request.json())['kwargs']['weights_path']}")
        if self.mode == "broken_reload":
            return web.json_response({"error": {"message": "as told"}}, status=500)
        return web.json_response({"results": [None]})

    async def pause_or_resume(self, request: web.Request) -> web.Response:
        self.control.append(request.path.strip("/"))
        return web.json_response({})


def app() -> web.Application:
    fake = FakeEngine()
    application = web.Application()
    application.add_routes(
        [
            web.get("/health", fake.health),
            web.get("/fake", fake.seen),
            web.post("/fake", fake.set_mode),
            web.post("/inference/v1/generate", fake.generate),
            web.post("/v1/chat/completions/derender", fake.derender),
            web.post("/update_weight_version", fake.update_weight_version),
            web.post("/collective_rpc", fake.collective_rpc),
            web.post("/pause", fake.pause_or_resume),
            web.post("/resume", fake.pause_or_resume),
        ]
    )
    return application


if __name__ == "__main__":
    web.run_app(app(), host="127.0.0.1", port=int(sys.argv[1]), print=None)
