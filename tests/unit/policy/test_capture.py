"""A session read back from its captures has the tokens that it had before."""

from __future__ import annotations

from headrace.contracts.base import logprobs, token_ids
from headrace.contracts.policy import Call, PolicyVersion, Sampling, SessionOpen, VersionSpan
from headrace_policy.capture import replay

OPENED = SessionOpen(
    session_id="trace_a", job_id="job_1", rollout_id="r", attempt=1, timeline=3, serve_id="serve_1",
    mode="rl", sampling=Sampling(), ttl_s=60,
)  # fmt: skip


def call(index: int, parent: int | None, prompt: list[int], sampled: list[int], said: str) -> Call:
    span = VersionSpan(version=PolicyVersion(timeline=1, n=0), start=0, end=len(sampled))
    return Call(
        index=index,
        call_id=f"c{index}",
        parent=parent,
        new_prompt_ids=token_ids(prompt),
        sampled_ids=token_ids(sampled),
        sampled_logprobs=logprobs([-1.0] * len(sampled)),
        version_spans=(span,) if sampled else (),
        new_messages=({"role": "user", "content": f"q{index}"},),
        tools=({"type": "function"},) if parent is None else None,
        reply={"role": "assistant", "content": said} if sampled else None,
    )


def test_deltas_are_put_together_along_their_parents():
    calls = [
        call(2, 0, [20], [21], "c"),
        call(0, None, [1, 2], [3, 9], "a"),
        call(1, None, [7], [], ""),
    ]
    session = replay(OPENED, calls, eos_ids=[9])
    assert session.next_index == 3
    assert sorted(session.answered) == [0, 2]
    assert list(session.answered[2].token_ids) == [1, 2, 3, 9, 20, 21]
    assert [m["content"] for m in session.answered[2].messages] == ["q0", "a", "q2"]
    assert session.answered[2].tools == ({"type": "function"},)
    assert session.answered[0].stop_id == 9
    assert session.answered[2].stop_id is None
