"""`/inference/v1/chat/completions`: a trained model answers its owner, in the OpenAI dialect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

import httpx
from fastapi import APIRouter, Body
from redis.exceptions import RedisError
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from headrace.errors import Unavailable
from headrace_api.deps import CallerDep
from headrace_api.inference.admitted import Admitted
from headrace_api.inference.asking import Question
from headrace_api.inference.desk import ClientGone, Desk

router = APIRouter(tags=["inference"])

CLIENT_CLOSED_REQUEST = 499
"""Nobody reads it."""


@router.post("/inference/v1/chat/completions")
@router.post("/v1/chat/completions", include_in_schema=False)
@router.post("/chat/completions", include_in_schema=False)
async def chat_completions(
    request: Request, body: Annotated[dict[str, Any], Body()], caller: CallerDep
) -> Response:
    """A chat completion by a model of the caller's organisation; `stream: true` streams it.

    503 with Retry-After while a job holds the engine.
    """
    desk: Desk = request.app.state.desk
    question = Question.parse(body)
    model = await desk.find(caller.org_id, question.model)
    try:
        admitted = await desk.admit(caller.org_id, model, question.sampling, request.is_disconnected)
    except ClientGone:
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    except RedisError as error:
        raise Unavailable(f"Redis does not answer: {error}", retry_after_s=5) from error
    try:
        answer = await _while_connected(request, admitted, question.body)
    except BaseException:
        admitted.end()
        raise
    if answer is None:
        admitted.end()
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    if question.is_stream and answer.status_code == 200:
        return _Forwarded(admitted, answer)
    content = answer.content
    admitted.end()
    headers = {name: answer.headers[name] for name in ("retry-after",) if name in answer.headers}
    return Response(content, answer.status_code, headers, media_type="application/json")


async def _while_connected(
    request: Request, admitted: Admitted, body: dict[str, Any]
) -> httpx.Response | None:
    """The gateway's answer, whole unless it is a stream; None when the client goes before it came."""
    asked = asyncio.create_task(_ask(admitted, body))
    gone = asyncio.create_task(_until_disconnect(request))
    try:
        await asyncio.wait({asked, gone}, return_when=asyncio.FIRST_COMPLETED)
        return await asked if asked.done() else None
    finally:
        for task in (asked, gone):
            task.cancel()


async def _ask(admitted: Admitted, body: dict[str, Any]) -> httpx.Response:
    answer = await admitted.ask(body)
    if answer.status_code != 200 or not body.get("stream"):
        await admitted.read(answer)
    return answer


async def _until_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


class _Forwarded(StreamingResponse):
    """The gateway's event stream as it comes; the call ends with it, however that is."""

    def __init__(self, admitted: Admitted, answer: httpx.Response) -> None:
        super().__init__(
            _chunks(answer), media_type="text/event-stream", headers={"Cache-Control": "no-cache"}
        )
        self._admitted, self._answer = admitted, answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._admitted.end()
            await self._answer.aclose()


async def _chunks(answer: httpx.Response) -> AsyncIterator[bytes]:
    try:
        async for chunk in answer.aiter_raw():
            yield chunk
    except httpx.TransportError:
        yield b'data: {"error": {"message": "the policy gateway went away; ask again", "code": "unavailable"}}\n\n'
        yield b"data: [DONE]\n\n"
