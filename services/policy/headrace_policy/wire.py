"""Replies and errors in the OpenAI dialect, whole or as server-sent events. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from headrace.contracts.policy import Call
from headrace.errors import BadRequest, HeadraceError
from headrace.render.template import Message

KEEP_ALIVE = ": keep-alive\n\n"
DONE = "data: [DONE]\n\n"
CHUNK_CHARACTERS = 48


class ContextOverflow(BadRequest):
    """The prompt leaves no room for a reply."""

    code = "context_length_exceeded"


def completion(
    call: Call, n_prompt: int, model: str, token_text: Callable[[int], str] | None = None
) -> dict[str, Any]:
    """The chat completion of an answered call; `token_text` is given when the agent asked for logprobs."""
    scored = None
    if token_text is not None:
        pairs = zip(call.sampled_ids, call.sampled_logprobs, strict=True)
        scored = {"content": [_scored(token_text(token), logprob) for token, logprob in pairs]}
    n_sampled = len(call.sampled_ids)
    return {
        "id": call.call_id,
        "object": "chat.completion",
        "created": int(call.started_at),
        "model": model,
        "choices": [
            {"index": 0, "message": call.reply, "logprobs": scored, "finish_reason": call.finish_reason}
        ],
        "usage": {
            "prompt_tokens": n_prompt,
            "completion_tokens": n_sampled,
            "total_tokens": n_prompt + n_sampled,
        },
    }


def _scored(text: str, logprob: float) -> dict[str, Any]:
    return {"token": text, "logprob": logprob, "bytes": list(text.encode()), "top_logprobs": []}


def events(whole: dict[str, Any], include_usage: bool) -> Iterator[str]:
    """A finished completion as the chunks of a streamed one."""
    [choice] = whole["choices"]
    # Who asks for usage gets it last, and the key with null before that.
    head = _head(whole) | ({"usage": None} if include_usage else {})
    for delta, logprobs in _deltas(choice["message"], choice["logprobs"]):
        yield _chunk(head, delta, logprobs)
    yield _chunk(head, {}, finish_reason=choice["finish_reason"])
    if include_usage:
        yield _event(head | {"choices": [], "usage": whole["usage"]})
    yield DONE


def _deltas(message: Message, logprobs: Any) -> Iterator[tuple[dict[str, Any], Any]]:
    """The message in pieces that add up to it; the first carries the scores of all tokens."""
    opening = None if message.get("content") is None else ""
    yield {"role": "assistant", "content": opening}, logprobs
    for name in ("reasoning", "content"):
        text = message.get(name) or ""
        for start in range(0, len(text), CHUNK_CHARACTERS):
            yield {name: text[start : start + CHUNK_CHARACTERS]}, None
    for number, tool_call in enumerate(message.get("tool_calls") or []):
        yield {"tool_calls": [{"index": number, **tool_call}]}, None


def _chunk(
    head: dict[str, Any],
    delta: dict[str, Any],
    logprobs: dict[str, Any] | None = None,
    finish_reason: str | None = None,
) -> str:
    choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
    return _event(head | {"choices": [choice]})


def _head(whole: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": whole["id"],
        "object": "chat.completion.chunk",
        "created": whole["created"],
        "model": whole["model"],
    }


def _event(body: dict[str, Any]) -> str:
    return f"data: {json.dumps(body)}\n\n"


def error_body(error: HeadraceError) -> dict[str, Any]:
    """One body for OpenAI clients (`error`) and for ours (`detail`)."""
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    shown = {"message": error.message, "type": kind, "param": None, "code": error.code}
    return {"error": shown, "detail": error.message}


def error_events(error: HeadraceError) -> Iterator[str]:
    """An error after the stream's headers have gone out."""
    yield _event(error_body(error))
    yield DONE
