"""Streamed answers, read by the rules of server-sent events and of OpenAI's clients."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.sse import accumulated, sse_data

from headrace.contracts.base import logprobs, token_ids
from headrace.contracts.policy import Call, PolicyVersion, VersionSpan
from headrace.errors import Unavailable
from headrace_policy import app
from headrace_policy.gateway import Gateway
from headrace_policy.in_flight import CallTask
from headrace_policy.wire import KEEP_ALIVE, completion, error_events, events

TOOL_CALL = {"id": "c", "type": "function", "function": {"name": "go", "arguments": '{"to": "süd\\n"}'}}


def whole(reply: dict[str, Any], finish_reason: str = "stop") -> dict[str, Any]:
    call = Call(
        index=0,
        call_id="chatcmpl-1",
        new_prompt_ids=token_ids([1, 2]),
        sampled_ids=token_ids([3, 4]),
        sampled_logprobs=logprobs([-1.0, -2.0]),
        version_spans=(VersionSpan(version=PolicyVersion(timeline=1, n=0), start=0, end=2),),
        finish_reason=finish_reason,
        reply={"role": "assistant", **reply},
        started_at=5.5,
    )
    return completion(call, 2, "m", str)


@given(
    content=st.one_of(st.none(), st.text(max_size=150)),
    reasoning=st.one_of(st.none(), st.text(min_size=1, max_size=99)),
    n_calls=st.integers(0, 3),
)
def test_what_a_client_adds_up_is_the_whole_answer(content: str | None, reasoning: str | None, n_calls: int):
    reply: dict[str, Any] = {"content": content}
    if reasoning is not None:
        reply["reasoning"] = reasoning
    if n_calls:
        reply["tool_calls"] = [{**TOOL_CALL, "id": f"c{number}"} for number in range(n_calls)]
    answer = whole(reply, "tool_calls" if n_calls else "stop")
    message, chunks = accumulated("".join(events(answer, False)))
    assert message == {"role": "assistant", **reply}
    reasons = [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"]]
    assert reasons == [None] * (len(reasons) - 1) + [answer["choices"][0]["finish_reason"]]
    scored = [choice["logprobs"] for chunk in chunks for choice in chunk["choices"] if choice["logprobs"]]
    assert scored == [answer["choices"][0]["logprobs"]]
    assert not any("usage" in chunk for chunk in chunks)


def test_usage_comes_last_in_a_chunk_without_choices_and_is_null_before():
    answer = whole({"content": "x" * 100})
    _, chunks = accumulated("".join(events(answer, True)))
    assert [chunk["usage"] for chunk in chunks] == [None] * (len(chunks) - 1) + [answer["usage"]]
    assert [chunk["choices"] == [] for chunk in chunks] == [False] * (len(chunks) - 1) + [True]


def test_an_error_in_a_stream_is_an_event_of_its_own_and_the_stream_ends():
    shown, last = sse_data("".join(error_events(Unavailable("down"))))
    assert json.loads(shown)["error"]["message"] == "down"
    assert last == "[DONE]"


def test_comments_keep_a_slow_stream_alive_and_say_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(app, "KEEP_ALIVE_S", 0.01)
    answer = whole({"content": "yes"})

    async def streamed() -> str:
        may_end = asyncio.Event()

        async def answered() -> dict[str, Any]:
            await may_end.wait()
            return answer

        call = CallTask("trace_1", 0)
        call.task = asyncio.create_task(answered())
        text = ""
        # The gateway is only told of a client that has left, and this one stays.
        async for chunk in app._stream(cast(Gateway, None), call, False):
            text += chunk
            if text.count(KEEP_ALIVE) == 2:
                may_end.set()
        return text

    text = asyncio.run(streamed())
    assert text.startswith(KEEP_ALIVE * 2)
    message, _ = accumulated(text)
    assert message["content"] == "yes"
