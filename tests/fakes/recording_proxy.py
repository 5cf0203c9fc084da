"""Passes every request on to another server and keeps what was asked, without secrets."""

from __future__ import annotations

import email
import email.policy
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

KEPT_HEADERS = ("accept", "authorization", "content-type", "idempotency-key", "x-user-id", "x-org-id")
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
MAX_LINES = 4
"""Of an uploaded file so many lines are kept."""


@dataclass
class RecordingProxy:
    """An ASGI app at `app`; `requests` fills in order of arrival."""

    upstream: str
    requests: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.app = Starlette(routes=[Route("/{path:path}", self._forward, methods=METHODS)])

    def take(self) -> list[dict[str, Any]]:
        """What was asked since the last time."""
        taken, self.requests = self.requests, []
        return taken

    async def _forward(self, request: Request) -> StreamingResponse:
        raw = await request.body()
        self.requests.append(_recorded(request, raw))
        headers = {k: v for k, v in request.headers.items() if k not in ("host", "content-length")}
        http = httpx.AsyncClient(base_url=self.upstream, trust_env=False, timeout=None)
        url = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        answer = await http.send(
            http.build_request(request.method, url, headers=headers, content=raw), stream=True
        )

        async def body() -> AsyncIterator[bytes]:
            try:
                async for chunk in answer.aiter_raw():
                    yield chunk
            finally:
                await answer.aclose()
                await http.aclose()

        hop = ("transfer-encoding", "connection")
        kept = {k: v for k, v in answer.headers.items() if k not in hop}
        return StreamingResponse(body(), status_code=answer.status_code, headers=kept)


def _recorded(request: Request, raw: bytes) -> dict[str, Any]:
    headers = {name: request.headers[name] for name in KEPT_HEADERS if name in request.headers}
    if "authorization" in headers:
        headers["authorization"] = "Bearer {key}"
    one: dict[str, Any] = {"method": request.method, "path": request.url.path, "headers": headers}
    if request.url.query:
        one["query"] = dict(request.query_params)
    kind = headers.get("content-type", "")
    if kind.startswith("multipart/form-data"):
        headers["content-type"] = "multipart/form-data"
        one["form"] = _form(kind, raw)
    elif raw:
        one["body"] = json.loads(raw)
    return one


def _form(kind: str, raw: bytes) -> list[dict[str, Any]]:
    message = email.message_from_bytes(
        f"Content-Type: {kind}\r\n\r\n".encode() + raw, policy=email.policy.HTTP
    )
    fields = []
    for part in message.iter_parts():  # pyright: ignore[reportAttributeAccessIssue]
        text = part.get_payload(decode=True).decode()
        one = {"name": part.get_param("name", header="content-disposition"), "text": text}
        if part.get_filename():
            lines = text.splitlines(keepends=True)
            one |= {"filename": part.get_filename(), "content_type": part.get_content_type()}
            one["text"] = "".join(lines[:MAX_LINES])
        fields.append(one)
    return fields
