"""Every message between services has a golden file: a change to a contract is a visible diff.

`HEADRACE_WRITE_GOLDEN=1 pytest tests/contract` writes the files anew.
"""

from __future__ import annotations

import inspect
import json
import os
from pathlib import Path

import pytest

from headrace.contracts import policy, rollout, task_app, trajectory
from headrace.contracts.base import Contract, logprobs, token_ids
from headrace.contracts.policy import (
    Call,
    CallError,
    CapturedSession,
    EngineState,
    PolicyStatus,
    PolicyVersion,
    ProbeRequest,
    ProbeResult,
    PublishRequest,
    PublishResult,
    Sampling,
    ServeSpec,
    SessionOpen,
    VersionSpan,
)  # fmt: skip
from headrace.contracts.rollout import RolloutOrder
from headrace.contracts.task_app import TaskFacts
from headrace.contracts.trajectory import (
    EventReward,
    Op,
    Outcome,
    Rewards,
    TaskAppIdentity,
    Trajectory,
    TrajectoryRef,
)  # fmt: skip

GOLDEN = Path(__file__).parent / "golden"

VERSION = PolicyVersion(timeline=2, n=17)
SAMPLING = Sampling(temperature=1.0, max_tokens=12, seed=7)
USER, REPLY = {"role": "user", "content": "x+3 y-2"}, {"role": "assistant", "content": "RRR"}
FIRST = Call(
    index=0, call_id="chatcmpl-1", new_prompt_ids=token_ids([1, 2, 3]), sampled_ids=token_ids([4, 5]),
    sampled_logprobs=logprobs([-0.25, -1.5]),
    version_spans=(VersionSpan(version=VERSION, start=0, end=2),), temperature=1.0, seed=99,
    finish_reason="stop", new_messages=(USER,), tools=({"name": "move"},), reply=REPLY,
    overridden=("top_p",), started_at=1700000000.0, latency_s=0.5,
)  # fmt: skip
BROKEN = Call(
    index=1, call_id="chatcmpl-2", parent=0, split_reason=None, new_prompt_ids=token_ids([6]),
    sampled_ids=token_ids(), sampled_logprobs=logprobs(), is_trainable=False,
    untrainable_reason="no reply",
    error=CallError(status=400, code="context_overflow", message="too long", is_policy_fault=True),
)  # fmt: skip
EXAMPLES: tuple[Contract, ...] = (
    TaskFacts(task_id="walk", version="1", seed_range=(0, 59), reward_range=(0.0, 1.0)),
    VERSION,
    VersionSpan(version=VERSION, start=0, end=2),
    SAMPLING,
    ServeSpec(
        serve_id="job_1/2", job_id="job_1", model_path="/models/tiny", architecture_hash="ab" * 32,
        max_model_len=512, dtype="float32", engine_args=("--seed", "0"), version=VERSION, fence=3,
    ),
    PolicyStatus(
        state=EngineState.READY, serve_id="job_1/2", version=VERSION, fence=3, reason=None,
        since=1700000000.0, n_in_flight=4,
    ),
    SessionOpen(
        session_id="trace_00", job_id="job_1", rollout_id="job_1.train.i3.g0.m7", attempt=1, timeline=2,
        serve_id="job_1/2", mode="rl", sampling=SAMPLING, ttl_s=600.0,
    ),
    FIRST,
    BROKEN.error or CallError(status=0, code="", message="", is_policy_fault=False),
    CapturedSession(session_id="trace_00", rollout_id="job_1.train.i3.g0.m7", calls=(FIRST, BROKEN)),
    PublishRequest(serve_id="job_1/2", fence=3, version=VERSION, weights_path="/artifacts/weights/17"),
    PublishResult(version=VERSION, pause_s=0.1),
    ProbeRequest(serve_id="job_1/2", fence=3, prompt_ids=token_ids([1, 2, 3]), n_tokens=2),
    ProbeResult(
        version=VERSION, sampled_ids=token_ids([4, 5]), cold_logprobs=logprobs([-0.5, -0.25]),
        cached_logprobs=logprobs([-0.5, -0.25]),
    ),
    RolloutOrder(
        org_id="local", job_id="job_1", rollout_id="job_1.train.i3.g0.m7", attempt=1, timeline=2,
        purpose="train", iteration=3, group=0, member=7, seed=11, mode="rl", serve_id="job_1/2",
        task_url="http://127.0.0.1:9000", policy_url="http://127.0.0.1:8761",
        policy_public_url="http://127.0.0.1:8761", env_name="walk", env_config={"split": "train"},
        policy_name="p", policy_config={"temperature": 1.0}, ops=("agent", "env"), sampling=SAMPLING,
        model="tiny", failure_reward=0.0, deadline_s=600.0,
    ),
    EventReward(turn=0, call=0, key="closer", value=0.5, type="shaped"),
    Rewards(
        outcome_reward=1.0, event_rewards=(EventReward(turn=0, call=0, value=0.5),),
        source="outcome_reward", disagreement="metrics.mean_return = 0.5",
    ),
    Op(index=0, observation="x+3 y-2", action="RRR", reward=0.5, is_done=False, latency_s=0.01),
    TaskAppIdentity(task_id="walk", version="1"),
    Trajectory(
        org_id="local", job_id="job_1", rollout_id="job_1.train.i3.g0.m7", session_id="trace_00", attempt=1,
        timeline=2, purpose="train", iteration=3, group=0, member=7, seed=11, outcome=Outcome.SCORED,
        rewards=Rewards(outcome_reward=1.0, source="outcome_reward"),
        ops=(Op(index=0, observation="x+3 y-2", action="RRR"),), final_observation="done",
        details={"n": 1}, task_app=TaskAppIdentity(task_id="walk", version="1"), calls=(FIRST,),
        started_at=1700000000.0, finished_at=1700000001.5,
    ),
    TrajectoryRef(path="local/job_1/trajectories/trace_00.json.zst", sha256="cd" * 32, n_bytes=70000),
)  # fmt: skip


def test_every_contract_has_an_example() -> None:
    declared = {
        member
        for module in (policy, rollout, task_app, trajectory)
        for _, member in inspect.getmembers(module, inspect.isclass)
        if issubclass(member, Contract) and member.__module__ == module.__name__
    }
    assert declared == {type(example) for example in EXAMPLES}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: type(example).__name__)
def test_a_contract_reads_and_writes_its_golden_file(example: Contract) -> None:
    path = GOLDEN / f"{type(example).__name__}.json"
    written = json.loads(example.model_dump_json())
    if os.environ.get("HEADRACE_WRITE_GOLDEN"):
        path.write_text(json.dumps(written, indent=1) + "\n")
    golden = path.read_text()
    assert written == json.loads(golden)
    assert type(example).model_validate_json(golden) == example
