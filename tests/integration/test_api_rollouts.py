from __future__ import annotations

import httpx
import pytest
from tests.fakes.trajectories import make_call, make_trajectory
from tests.integration.running_api import ALICE, RunningApi, api  # noqa: F401  (a fixture)

from headrace.contracts.policy import PolicyVersion, VersionSpan
from headrace.contracts.trajectory import EventReward, Outcome, Rewards
from headrace.errors import NotFound
from headrace.queue import names
from headrace.queue.streams import open_stream, push
from headrace_api.recorder import Recorder

pytestmark = pytest.mark.integration

UP = [ord("U") - ord("!"), ord("P") - ord("!")]
"""Byte-level ids of "U" and "P" in the tiny tokenizer, whose first symbols are the printable bytes."""


def recorded(api: RunningApi) -> tuple[str, str]:  # noqa: F811
    """A job with one rollout of two turns, a failed attempt before it; returns (job id, rollout id)."""
    from headrace.artifacts.files import ArtifactStore

    job_id = api.alice.create_rl_job(api.rl_payload())["job_id"]
    rollout_id = f"{job_id}.train.i1.g0.m0"
    api.redis.set(names.timeline(job_id), 1)
    open_stream(api.redis, "local", job_id)
    artifacts = ArtifactStore(api.settings.artifacts)
    spans = (
        VersionSpan(version=PolicyVersion(timeline=1, n=3), start=0, end=1),
        VersionSpan(version=PolicyVersion(timeline=1, n=4), start=1, end=2),
    )
    first = make_call(
        0, [1, 2, 3], UP, version_spans=spans, reply={"role": "assistant", "content": "UP"},
        new_messages=({"role": "user", "content": "go"},), tools=({"name": "move"},),
    )  # fmt: skip
    second = make_call(
        1, [7], UP[:1], parent=0, new_messages=({"role": "user", "content": "more"},),
        reply={"role": "assistant", "content": "U"},
    )  # fmt: skip
    rewards = Rewards(outcome_reward=1.0, event_rewards=(EventReward(turn=1, call=1, value=0.5),))
    base = make_trajectory(first, second, rollout_id=rollout_id).model_copy(
        update={"job_id": job_id, "iteration": 1, "rewards": rewards, "attempt": 2}
    )
    failed = base.model_copy(
        update={
            "session_id": "trace_failed", "attempt": 1, "outcome": Outcome.INFRA_FAILED, "rewards": Rewards(),
            "calls": (), "reason": "the task app answered 500", "boundary": "task_app",
        }
    )  # fmt: skip
    for trajectory in (failed, base):
        push(api.redis, artifacts, trajectory)
    Recorder(api.store, api.redis, artifacts, wait_s=0.05).record_once()
    return job_id, rollout_id


def test_a_rollout_shows_messages_tokens_logprobs_and_versions(api: RunningApi) -> None:  # noqa: F811
    _, rollout_id = recorded(api)
    found = api.alice.rollout(rollout_id)
    assert (found["rollout"]["status"], found["rollout"]["outcome_reward"]) == ("scored", 1.0)
    assert [(a["attempt"], a["outcome"], a["verdict"]) for a in found["attempts"]] == [
        (1, "infra_failed", "record"), (2, "scored", "accepted")
    ]  # fmt: skip
    assert [(e["turn"], e["call"], e["value"]) for e in found["event_rewards"]] == [(1, 1, 0.5)]
    first, second = found["trajectory"]["calls"]
    assert first["tokens"] == [
        {"id": UP[0], "text": "U", "logprob": -1.0, "version": "1.3"},
        {"id": UP[1], "text": "P", "logprob": -1.1, "version": "1.4"},
    ]
    assert [message["content"] for message in second["messages"]] == ["go", "UP", "more"]
    assert (first["n_prompt_tokens"], second["n_prompt_tokens"]) == (3, 6)
    assert second["tools"] == [{"name": "move"}]


def test_a_failed_attempt_can_be_shown_too(api: RunningApi) -> None:  # noqa: F811
    _, rollout_id = recorded(api)
    headers = {"Authorization": f"Bearer {ALICE}"}
    url = f"{api.url}/rollouts/{rollout_id}"
    shown = httpx.get(url, params={"session_id": "trace_failed"}, headers=headers).json()
    assert shown["trajectory"]["reason"] == "the task app answered 500"
    assert shown["event_rewards"] == []
    assert httpx.get(url, params={"session_id": "trace_x"}, headers=headers).status_code == 404


def test_tokens_have_no_text_once_the_model_is_gone(api: RunningApi, tmp_path) -> None:  # noqa: F811
    _, rollout_id = recorded(api)
    (tmp_path / "tiny" / "config.json").unlink()
    tokens = api.alice.rollout(rollout_id)["trajectory"]["calls"][0]["tokens"]
    assert [token["text"] for token in tokens] == ["", ""]
    assert tokens[0]["logprob"] == -1.0


def test_rollouts_are_listed_in_pages_and_filtered(api: RunningApi) -> None:  # noqa: F811
    job_id, rollout_id = recorded(api)
    page = api.alice.rollouts(job_id)
    assert (page["total"], page["rollouts"][0]["rollout_id"]) == (1, rollout_id)
    assert api.alice.rollouts(job_id, offset=1) == {"rollouts": [], "total": 1}
    for wanted, total in (
        ({"purpose": "train", "iteration": 1, "status": "scored"}, 1),
        ({"purpose": "eval"}, 0), ({"iteration": 0}, 0), ({"status": "planned"}, 0),
    ):  # fmt: skip
        assert api.alice.rollouts(job_id, **wanted)["total"] == total


def test_an_outsider_cannot_read_a_rollout(api: RunningApi) -> None:  # noqa: F811
    job_id, rollout_id = recorded(api)
    with pytest.raises(NotFound):
        api.charlie.rollout(rollout_id)
    with pytest.raises(NotFound):
        api.charlie.rollouts(job_id)
