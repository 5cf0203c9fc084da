"""Small trajectories with chosen tokens, for tests of what is made of them."""

from __future__ import annotations

from typing import Any

from headrace.contracts.base import logprobs, token_ids
from headrace.contracts.policy import Call, PolicyVersion, VersionSpan
from headrace.contracts.trajectory import Outcome, Rewards, Trajectory

VERSION = PolicyVersion(timeline=1, n=0)


def make_call(index: int, prompt: list[int], sampled: list[int], **changes: Any) -> Call:
    """A call whose k-th sampled token has the logprob -(index + 1) - k / 10."""
    spans = (VersionSpan(version=VERSION, start=0, end=len(sampled)),) if sampled else ()
    values = [-(index + 1) - k / 10 for k in range(len(sampled))]
    fields: dict[str, Any] = {"version_spans": spans, "sampled_logprobs": logprobs(values)} | changes
    return Call(
        index=index,
        call_id=f"call_{index}",
        new_prompt_ids=token_ids(prompt),
        sampled_ids=token_ids(sampled),
        **fields,
    )


def make_trajectory(
    *calls: Call, rollout_id: str = "job_1.train.i0.g0.m0", reward: float = 1.0
) -> Trajectory:
    return Trajectory(
        org_id="local",
        job_id="job_1",
        rollout_id=rollout_id,
        session_id=f"trace_{rollout_id}",
        attempt=1,
        timeline=1,
        purpose="train",
        iteration=0,
        group=0,
        member=0,
        seed=0,
        outcome=Outcome.SCORED,
        rewards=Rewards(outcome_reward=reward),
        calls=calls,
        started_at=0.0,
        finished_at=1.0,
    )
