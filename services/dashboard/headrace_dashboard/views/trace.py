"""One rollout as a conversation: what each call added, with the tokens that were sampled."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace_dashboard.views.format import pretty

Json = dict[str, Any]

_BUCKETS = ((-0.105, 0), (-0.693, 1), (-1.609, 2), (-2.996, 3))
"""Smallest logprob of each shade: p >= 0.9, 0.5, 0.2, 0.05; below that the darkest."""


def shade(logprob: float) -> int:
    """0 for a token that was nearly certain, to 4 for one with p < 0.05.

    >>> shade(-0.01), shade(-0.5), shade(-5.0)
    (0, 1, 4)
    """
    return next((level for bound, level in _BUCKETS if logprob >= bound), 4)


@dataclass(frozen=True)
class Token:
    token_id: int
    text: str
    logprob: float
    version: str
    shade: int
    is_newer: bool
    """Drawn from another version than the call's first token."""


@dataclass(frozen=True)
class Message:
    role: str
    text: str
    reasoning: str = ""
    tool_calls: tuple[tuple[str, str], ...] = ()
    """(name, arguments)."""


@dataclass(frozen=True)
class EventRewardView:
    key: str
    value: float
    turn: int


@dataclass(frozen=True)
class Turn:
    """One call: the messages it brought, and the reply."""

    index: int
    is_new_sequence: bool
    split_reason: str | None
    messages: tuple[Message, ...]
    reply: Message | None
    tokens: tuple[Token, ...]
    versions: tuple[str, ...]
    finish_reason: str | None
    latency_s: float | None
    temperature: float | None
    seed: int | None
    error: str | None
    untrainable_reason: str | None
    rewards: tuple[EventRewardView, ...] = field(default=())


def turns(trajectory: Json | None, event_rewards: Sequence[Json]) -> tuple[Turn, ...]:
    """The calls of a stored trajectory in order. `event_rewards` are the rollout's rows."""
    calls = (trajectory or {}).get("calls") or []
    by_index = {call.get("index", i): call for i, call in enumerate(calls)}
    return tuple(_turn(i, call, by_index, event_rewards) for i, call in enumerate(calls))


def _turn(i: int, call: Json, calls: Mapping[int, Json], event_rewards: Sequence[Json]) -> Turn:
    index = call.get("index", i)
    tokens = _tokens(call.get("tokens") or [])
    error = call.get("error") or {}
    return Turn(
        index=index,
        is_new_sequence=call.get("parent") is None,
        split_reason=call.get("split_reason"),
        messages=tuple(message(m) for m in _new_messages(call, calls)),
        reply=message(call["reply"]) if call.get("reply") else None,
        tokens=tokens,
        versions=tuple(dict.fromkeys(token.version for token in tokens)),
        finish_reason=call.get("finish_reason"),
        latency_s=call.get("latency_s"),
        temperature=call.get("temperature"),
        seed=call.get("seed"),
        error=error.get("message"),
        untrainable_reason=None
        if call.get("is_trainable", True)
        else call.get("untrainable_reason") or "yes",
        rewards=tuple(
            EventRewardView(row.get("key") or "reward", row["value"], row["turn"])
            for row in event_rewards
            if (row.get("call") if row.get("call") is not None else row["turn"]) == index
        ),
    )


def _new_messages(call: Json, calls: Mapping[int, Json]) -> Sequence[Json]:
    """What the call added to its parent's messages and reply; all of them for a new sequence."""
    messages = call.get("messages")
    if messages is None:
        return call.get("new_messages") or []
    parent = calls.get(call["parent"]) if call.get("parent") is not None else None
    if parent is None or parent.get("messages") is None:
        return messages
    return messages[len(parent["messages"]) + 1 :]


def _tokens(rows: Sequence[Json]) -> tuple[Token, ...]:
    first = str(rows[0].get("version")) if rows else ""
    return tuple(
        Token(
            token_id=row["id"],
            text=row.get("text") or "",
            logprob=_logprob(row),
            version=str(row.get("version")),
            shade=shade(_logprob(row)),
            is_newer=str(row.get("version")) != first,
        )
        for row in rows
    )


def _logprob(row: Json) -> float:
    """JSON has no minus infinity: it comes as null."""
    return -math.inf if row["logprob"] is None else row["logprob"]


def message(raw: Json) -> Message:
    """A chat message with its parts as text; content may be text, a list of parts, or absent."""
    return Message(
        role=str(raw.get("role") or "assistant"),
        text=_text(raw.get("content")),
        reasoning=_text(raw.get("reasoning") or raw.get("reasoning_content")),
        tool_calls=tuple(_tool_call(call) for call in raw.get("tool_calls") or []),
    )


def _tool_call(call: Json) -> tuple[str, str]:
    function = call.get("function") or call
    return str(function.get("name") or "tool"), pretty(function.get("arguments") or "")


def _text(content: object) -> str:
    if content is None:
        return ""
    if isinstance(content, list):
        return "\n".join(_part(part) for part in content)
    return content if isinstance(content, str) else pretty(content)


def _part(part: object) -> str:
    if isinstance(part, dict):
        return part["text"] if isinstance(part.get("text"), str) else pretty(part)
    return str(part)
