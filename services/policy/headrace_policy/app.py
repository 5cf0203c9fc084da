"""The gateway's HTTP routes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from fastapi import FastAPI
from pydantic import BaseModel, ValidationError
from redis.asyncio import Redis
from redis.exceptions import RedisError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from headrace.contracts.policy import ProbeRequest, PublishRequest, SessionOpen
from headrace.errors import BadRequest, HeadraceError, NotFound, Unavailable
from headrace_policy.gateway import Gateway
from headrace_policy.in_flight import CallTask
from headrace_policy.routing import (
    CHAT,
    MODELS,
    Role,
    require_trainer,
    role_of,
    route_of,
    session_id_of,
)
from headrace_policy.settings import PolicySettings
from headrace_policy.wire import KEEP_ALIVE, error_body, error_events, events

KEEP_ALIVE_S = 10.0
RETRY_AFTER_S = 2
Model = TypeVar("Model", bound=BaseModel)


def create_app(settings: PolicySettings, gateway: Gateway, redis: Redis) -> FastAPI:
    """The gateway as an ASGI app over collaborators that `__main__` has made."""
    app = FastAPI(title="Headrace policy gateway", docs_url=None, redoc_url=None)
    app.add_exception_handler(HeadraceError, _on_error)
    app.add_exception_handler(RedisError, _on_redis_error)

    routes = _Routes(settings, gateway, redis)
    table: list[tuple[str, str, Callable[[Request], Awaitable[Response]]]] = [
        ("POST", "/sessions", routes.open_session),
        ("POST", "/sessions/{session_id}/end", routes.end_session),
        ("POST", "/admin/publish", routes.publish),
        ("POST", "/admin/probe", routes.probe),
        ("GET", "/status", routes.status),
        ("GET", "/health", routes.health),
        ("GET", "/ready", routes.ready),
        ("POST", "/{path:path}", routes.agent),
        ("GET", "/{path:path}", routes.agent),
    ]
    for method, path, handler in table:
        # Plain Starlette routes: the hot path needs none of FastAPI's request parsing.
        app.router.add_route(path, handler, methods=[method])
    return app


class _Routes:
    """One short handler per route: parse, call, return."""

    def __init__(self, settings: PolicySettings, gateway: Gateway, redis: Redis) -> None:
        self._settings, self._gateway, self._redis = settings, gateway, redis

    async def open_session(self, request: Request) -> Response:
        self._role(request)
        opened = await _parsed(request, SessionOpen)
        is_new = await self._gateway.open_session(opened)
        body = {"session_id": opened.session_id, "path": f"/rollout/{opened.session_id}/v1"}
        return JSONResponse(body, status_code=201 if is_new else 200)

    async def end_session(self, request: Request) -> Response:
        self._role(request)
        return _model(await self._gateway.end_session(request.path_params["session_id"]))

    async def publish(self, request: Request) -> Response:
        require_trainer(self._role(request))
        return _model(await self._gateway.slot.publish(await _parsed(request, PublishRequest)))

    async def probe(self, request: Request) -> Response:
        require_trainer(self._role(request))
        return _model(await self._gateway.slot.probe(await _parsed(request, ProbeRequest)))

    async def status(self, _: Request) -> Response:
        return _model(self._gateway.slot.status())

    async def health(self, _: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def ready(self, _: Request) -> Response:
        await self._redis.ping()  # pyright: ignore[reportGeneralTypeIssues]
        return JSONResponse({"status": "ready", "engine": self._gateway.slot.status().state})

    async def agent(self, request: Request) -> Response:
        return await _agent_route(self._gateway, request)

    def _role(self, request: Request) -> Role:
        settings = self._settings
        return role_of(request.headers.get("authorization"), settings.worker_token, settings.trainer_token)


async def _agent_route(gateway: Gateway, request: Request) -> Response:
    """A route of the OpenAI dialect, under any of the URLs that task apps make of ours."""
    query = dict(request.query_params)
    route = route_of(request.url.path, query)
    session_id = session_id_of(request.url.path, query)
    wanted = CHAT if request.method == "POST" else MODELS
    if route != wanted or session_id is None:
        raise NotFound(f"no route {request.method} {request.url.path}; use /rollout/<session>/v1/{wanted}")
    if route == MODELS:
        model = {"id": await gateway.admitted_model(session_id), "object": "model", "owned_by": "headrace"}
        return JSONResponse({"object": "list", "data": [model]})
    body = await _json(request)
    is_retry = request.headers.get("x-stainless-retry-count", "0") not in ("", "0")
    call = await gateway.start_call(session_id, body, is_retry)
    is_stream = bool(body.get("stream"))
    is_finished = await _wait_while_connected(
        gateway, request, call, timeout_s=KEEP_ALIVE_S if is_stream else None
    )
    if not is_stream:
        return JSONResponse(_result(call))
    options = body.get("stream_options")
    include_usage = isinstance(options, dict) and bool(options.get("include_usage"))
    if is_finished:
        _result(call)  # an error known before the headers keeps its status
    stream = _stream(gateway, call, include_usage)
    return StreamingResponse(stream, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})


def _result(call: CallTask) -> dict[str, Any]:
    assert call.task is not None
    return call.task.result()


async def _wait_while_connected(
    gateway: Gateway, request: Request, call: CallTask, timeout_s: float | None
) -> bool:
    """Wait for the call; stop it when the client goes. True when it has ended."""
    assert call.task is not None
    gone = asyncio.create_task(_until_disconnect(request))
    try:
        await asyncio.wait({call.task, gone}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if gone.done():
            gateway.left(call)
            await asyncio.wait({call.task})
    finally:
        gone.cancel()
    return call.task.done()


async def _until_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _stream(gateway: Gateway, call: CallTask, include_usage: bool) -> AsyncIterator[str]:
    """Keep-alive comments until the call ends, then its chunks."""
    assert call.task is not None
    is_delivered = False
    try:
        while not (await asyncio.wait({call.task}, timeout=KEEP_ALIVE_S))[0]:
            yield KEEP_ALIVE
        try:
            chunks = events(call.task.result(), include_usage)
        except HeadraceError as error:
            chunks = error_events(error)
        for chunk in chunks:
            yield chunk
        is_delivered = True
    finally:
        if not is_delivered:
            gateway.left(call)


async def _json(request: Request) -> dict[str, Any]:
    raw = await request.body()
    try:
        body = json.loads(raw)
        if b"\\u" in raw:  # half of a surrogate pair parses, and no tokenizer takes it
            json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise BadRequest("the request body holds half of a surrogate pair, which is no text") from error
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the request body is not valid JSON: {error}") from error
    if not isinstance(body, dict):
        raise BadRequest("the request body must be a JSON object")
    return body


async def _parsed(request: Request, model: type[Model]) -> Model:
    try:
        return model.model_validate_json(await request.body())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "body"
        raise BadRequest(f"{model.__name__}: {where}: {first['msg']}") from error


def _model(body: BaseModel) -> Response:
    return Response(body.model_dump_json(), media_type="application/json")


async def _on_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HeadraceError)
    headers = {"Retry-After": str(RETRY_AFTER_S)} if error.status == 503 else None
    return JSONResponse(error_body(error), status_code=error.status, headers=headers)


async def _on_redis_error(request: Request, error: Exception) -> Response:
    return await _on_error(request, Unavailable(f"Redis does not answer: {error}"))
