"""Replies as OpenAI clients read them."""

from __future__ import annotations

import json
from typing import Any

from headrace.contracts.base import logprobs, token_ids
from headrace.contracts.policy import Call, PolicyVersion, VersionSpan
from headrace.errors import Unavailable
from headrace_policy.wire import ContextOverflow, completion, error_body, error_events, events

CALL = Call(
    index=0,
    call_id="chatcmpl-1",
    new_prompt_ids=token_ids([1, 2]),
    sampled_ids=token_ids([3, 4]),
    sampled_logprobs=logprobs([-1.0, -2.0]),
    version_spans=(VersionSpan(version=PolicyVersion(timeline=1, n=0), start=0, end=2),),
    finish_reason="stop",
    reply={"role": "assistant", "content": "x" * 100, "reasoning": "because"},
    started_at=5.5,
)


def joined(whole: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    lines = "".join(events(whole, more.get("include_usage", False))).split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]


def test_a_completion_counts_its_tokens_and_scores_them_when_asked():
    whole = completion(CALL, 2, "m", str)
    assert whole["usage"] == {"prompt_tokens": 2, "completion_tokens": 2, "total_tokens": 4}
    assert [entry["logprob"] for entry in whole["choices"][0]["logprobs"]["content"]] == [-1.0, -2.0]
    assert completion(CALL, 2, "m")["choices"][0]["logprobs"] is None


def test_the_chunks_of_a_stream_add_up_to_the_reply():
    chunks = joined(completion(CALL, 2, "m"), include_usage=True)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    assert deltas[0]["role"] == "assistant"
    assert "".join(delta.get("content", "") for delta in deltas) == "x" * 100
    assert "".join(delta.get("reasoning", "") for delta in deltas) == "because"
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["usage"]["total_tokens"] == 4


def test_tool_calls_are_streamed_with_their_index():
    tool_call = {"id": "1", "type": "function", "function": {"name": "go", "arguments": "{}"}}
    reply = {"role": "assistant", "content": None, "tool_calls": [tool_call, tool_call]}
    called = CALL.model_copy(update={"reply": reply, "finish_reason": "tool_calls"})
    chunks = joined(completion(called, 2, "m"))
    sent = [c for chunk in chunks for c in chunk["choices"][0]["delta"].get("tool_calls", [])]
    assert [c["index"] for c in sent] == [0, 1]
    assert sent[0]["function"]["name"] == "go"


def test_errors_tell_the_client_whose_fault_it_is():
    overflow = error_body(ContextOverflow("too long"))["error"]
    assert (overflow["code"], overflow["type"]) == ("context_length_exceeded", "invalid_request_error")
    assert error_body(Unavailable("down"))["error"]["type"] == "server_error"
    assert "down" in next(iter(error_events(Unavailable("down"))))
