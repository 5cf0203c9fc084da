"""A policy gateway over real HTTP: sessions, scripted replies, captures with tokens. No engine.

A text is tokenised to its UTF-8 bytes; each sampled token has logprob -0.25 and version 1.0.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from headrace.contracts.base import logprobs, token_ids
from headrace.contracts.policy import (
    Call,
    CallError,
    CapturedSession,
    PolicyVersion,
    SessionOpen,
    VersionSpan,
)

STOP_ID = 256
VERSION = PolicyVersion(timeline=1, n=0)
TOKEN = "worker-token"


@dataclass(frozen=True)
class Refusal:
    """A scripted reply that is none: what the agent gets, and what the record says of it."""

    status: int = 400
    code: str = "context_length_exceeded"
    message: str = "the prompt is too long"
    is_policy_fault: bool = True


Script = Callable[[int, list[dict[str, Any]]], "str | dict[str, Any] | Refusal"]
"""(index of the call in its session, messages) -> text, a whole assistant message, or a Refusal."""


@dataclass
class Session:
    opened: SessionOpen
    calls: list[Call] = field(default_factory=list)
    seen: list[list[dict[str, Any]]] = field(default_factory=list)
    """Messages of each call with its reply; empty for a refused one."""
    is_ended: bool = False


@dataclass
class FakePolicy:
    script: Script | Sequence[str | Refusal] = ("ok",)
    """A function, or replies by call index (the last is repeated)."""
    latency_s: float = 0.0
    n_not_ready: int = 0
    """How many `POST /sessions` still answer 503."""
    stale_timelines: frozenset[int] = frozenset()
    sessions: dict[str, Session] = field(default_factory=dict)
    requests: list[dict[str, Any]] = field(default_factory=list)
    """Bodies of the chat completions asked for, in order."""
    n_in_flight: int = 0

    def __post_init__(self) -> None:
        self.app = Starlette(
            routes=[
                Route("/sessions", self._open, methods=["POST"]),
                Route("/sessions/{sid}/end", self._end, methods=["POST"]),
                Route("/rollout/{sid}/v1/chat/completions", self._chat, methods=["POST"]),
            ]
        )

    async def _open(self, request: Request) -> Response:
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return _error(401, "unauthorized", "unknown token")
        if self.n_not_ready:
            self.n_not_ready -= 1
            return _error(503, "unavailable", "engine not ready", {"Retry-After": "0.1"})
        opened = SessionOpen.model_validate_json(await request.body())
        if opened.timeline in self.stale_timelines:
            return _error(409, "stale_timeline", "a newer timeline owns the job")
        status = 200 if opened.session_id in self.sessions else 201
        self.sessions.setdefault(opened.session_id, Session(opened))
        body = {"session_id": opened.session_id, "path": f"/rollout/{opened.session_id}/v1"}
        return JSONResponse(body, status_code=status)

    async def _end(self, request: Request) -> Response:
        session = self.sessions.get(request.path_params["sid"])
        if session is None:
            return _error(404, "not_found", "no such session")
        session.is_ended = True
        captured = CapturedSession(
            session_id=session.opened.session_id,
            rollout_id=session.opened.rollout_id,
            calls=tuple(session.calls),
        )
        return Response(captured.model_dump_json(), media_type="application/json")

    async def _chat(self, request: Request) -> Response:
        session = self.sessions.get(request.path_params["sid"])
        if session is None:
            return _error(404, "not_found", "no such session")
        if session.is_ended:
            return _error(410, "gone", "the session has ended")
        body = json.loads(await request.body())
        self.requests.append(body)
        self.n_in_flight += 1
        try:
            await asyncio.sleep(self.latency_s)
        finally:
            self.n_in_flight -= 1
        index, messages = len(session.calls), body["messages"]
        said = self._say(index, messages)
        call = _capture(session, index, messages, said)
        session.calls.append(call)
        if isinstance(said, Refusal):
            session.seen.append([])
            return _error(said.status, said.code, said.message)
        assert call.reply is not None
        session.seen.append([*messages, call.reply])
        return JSONResponse(
            {
                "id": call.call_id,
                "object": "chat.completion",
                "model": body.get("model"),
                "choices": [{"index": 0, "message": call.reply, "finish_reason": call.finish_reason}],
                "usage": {
                    "prompt_tokens": len(call.new_prompt_ids),
                    "completion_tokens": len(call.sampled_ids),
                },
            }
        )

    def _say(self, index: int, messages: list[dict[str, Any]]) -> str | dict[str, Any] | Refusal:
        if callable(self.script):
            return self.script(index, messages)
        return self.script[min(index, len(self.script) - 1)]


def _capture(
    session: Session, index: int, messages: list[dict[str, Any]], said: str | dict[str, Any] | Refusal
) -> Call:
    parent = _parent(session, messages)
    new = messages[len(session.seen[parent]) :] if parent is not None else messages
    prompt = token_ids(list(json.dumps(new).encode()))
    call_id = f"chatcmpl-{session.opened.session_id}-{index}"
    if isinstance(said, Refusal):
        error = CallError(
            status=said.status, code=said.code, message=said.message, is_policy_fault=said.is_policy_fault
        )
        return Call(
            index=index, call_id=call_id, new_prompt_ids=prompt, sampled_ids=token_ids(),
            sampled_logprobs=logprobs(), new_messages=tuple(new), error=error,
            is_trainable=False, untrainable_reason="no reply",
        )  # fmt: skip
    reply = {"role": "assistant", "content": said} if isinstance(said, str) else said
    sampled = [*json.dumps(reply).encode(), STOP_ID]
    return Call(
        index=index, call_id=call_id, parent=parent, new_prompt_ids=prompt,
        sampled_ids=token_ids(sampled), sampled_logprobs=logprobs([-0.25] * len(sampled)),
        version_spans=(VersionSpan(version=VERSION, start=0, end=len(sampled)),),
        finish_reason="tool_calls" if reply.get("tool_calls") else "stop",
        new_messages=tuple(new), reply=reply,
    )  # fmt: skip


def _parent(session: Session, messages: list[dict[str, Any]]) -> int | None:
    """The longest earlier conversation that `messages` continue; refused calls have none."""
    fitting = [
        index for index, seen in enumerate(session.seen) if messages[: len(seen)] == seen and len(seen)
    ]
    return max(fitting, key=lambda index: len(session.seen[index]), default=None)


def _error(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse(
        {"error": {"code": code, "message": message}, "detail": message}, status_code=status, headers=headers
    )
