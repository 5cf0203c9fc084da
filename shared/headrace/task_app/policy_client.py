"""The agent's side of the policy: one chat completion per turn, over the rollout's inference URL.

A call is never repeated here: a second one would be a second sample of the same turn.
"""

from __future__ import annotations

import json
import ssl
import time
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx

from headrace.errors import BadRequest, HeadraceError
from headrace.task_app.environment import Action, ToolCall

PASSED_ON = ("model", "temperature", "top_p", "max_tokens", "stop", "seed")
"""Keys of `policy.config` that go into the request as they are."""


class InferenceFailed(HeadraceError):
    """The policy did not answer: the rollout fails with it, so that it never becomes a reward."""

    status = 502
    code = "inference_error"


class ContextExceeded(Exception):
    """The conversation no longer fits the policy: the policy's own doing."""


@dataclass(frozen=True)
class Reply:
    message: dict[str, Any]
    """The assistant message exactly as received, for the next request's history."""
    action: Action
    completion_id: str | None
    model: str | None
    finish_reason: str | None
    usage: dict[str, Any]
    latency_s: float


@cache
def _ssl_context() -> ssl.SSLContext:
    # Building one takes 20 ms: far too long to do per episode.
    return ssl.create_default_context()


def chat_url(inference_url: str) -> str:
    """The address of chat completions under `inference_url`; a query stays where it is.

    >>> chat_url("http://h/rollout/trace_1/v1?cid=trace_1")
    'http://h/rollout/trace_1/v1/chat/completions?cid=trace_1'
    """
    parts = urlsplit(inference_url)
    path = parts.path.rstrip("/")
    if not path.endswith("/chat/completions"):
        path += "/chat/completions" if path.endswith("/v1") else "/v1/chat/completions"
    return urlunsplit(parts._replace(path=path))


class PolicyClient:
    """Chat completions for one episode, on one connection of its own.

    A pool shared by hundreds of episodes searches all of its connections at each request, which costs
    more than the calls themselves.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        inference_url = config.get("inference_url")
        if not isinstance(inference_url, str) or urlsplit(inference_url).scheme not in ("http", "https"):
            raise BadRequest(f"policy.config.inference_url = {inference_url!r} is no http(s) URL")
        self.url = chat_url(inference_url)
        self._body = {key: config[key] for key in PASSED_ON if config.get(key) is not None}
        self._body.setdefault("model", "policy")
        # Shorter than any server's keep-alive: an idle connection is dropped by us, never under us.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=1, keepalive_expiry=2.0)
        self._http = httpx.AsyncClient(verify=_ssl_context(), limits=limits, trust_env=False)

    async def close(self) -> None:
        await self._http.aclose()

    async def complete(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None, timeout_s: float
    ) -> Reply:
        """One reply; raises ContextExceeded, or InferenceFailed with status and URL."""
        body = {**self._body, "messages": messages}
        if tools:
            body["tools"] = tools
        started = time.monotonic()
        try:
            response = await self._http.post(
                self.url, json=body, timeout=httpx.Timeout(timeout_s, connect=10)
            )
        except httpx.HTTPError as error:
            raise InferenceFailed(
                f"POST {self.url} failed: {type(error).__name__} {error}".rstrip(), url=self.url, status=None
            ) from error
        if response.status_code == 400 and "context_length_exceeded" in response.text:
            raise ContextExceeded(_message_of(response))
        if response.status_code != 200:
            raise InferenceFailed(
                f"POST {self.url} answered {response.status_code}: {_message_of(response)}",
                url=self.url, status=response.status_code,
            )  # fmt: skip
        return self._parse(response, time.monotonic() - started)

    def _parse(self, response: httpx.Response, latency_s: float) -> Reply:
        try:
            completion = response.json()
            choice = completion["choices"][0]
            message = {key: value for key, value in choice["message"].items() if value is not None}
            calls = tuple(_tool_call(raw) for raw in message.get("tool_calls", ()))
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise InferenceFailed(
                f"POST {self.url} answered 200 but no chat completion: {response.text[:200]}",
                url=self.url, status=200,
            ) from error  # fmt: skip
        message.setdefault("content", "" if not calls else None)
        finish_reason = choice.get("finish_reason")
        return Reply(
            message=message,
            action=Action(message["content"] or "", calls, finish_reason == "length"),
            completion_id=completion.get("id"),
            model=completion.get("model"),
            finish_reason=finish_reason,
            usage=completion.get("usage") or {},
            latency_s=latency_s,
        )


def _tool_call(raw: dict[str, Any]) -> ToolCall:
    function = raw["function"]
    text = function.get("arguments") or "{}"
    try:
        arguments = json.loads(text)
    except ValueError:
        arguments = None
    return ToolCall(
        id=raw.get("id") or "",
        name=function["name"],
        arguments=arguments if isinstance(arguments, dict) else {},
        raw=text,
    )


def _message_of(response: httpx.Response) -> str:
    try:
        error = response.json()["error"]
        return str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, LookupError, TypeError):
        return response.text[:200]
