"""What keeps a follower of a job fed: heartbeats of quiet jobs, and metrics between the events."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import update
from sqlmodel import col
from tests.integration.running_api import ALICE, RunningApi, api  # noqa: F401  (a fixture)

from headrace.clock import now
from headrace.config.pools import pools
from headrace.contracts.job import JobStatus
from headrace.store import heartbeats, jobs, metrics
from headrace.store.tables import JobEvent

pytestmark = pytest.mark.integration

HEARTBEAT = "rl.job.heartbeat"


def grow_quiet(api: RunningApi, job_id: str) -> None:  # noqa: F811
    """As if the newest event had come long ago."""
    with api.store.write() as session:
        session.execute(
            update(JobEvent)
            .where(col(JobEvent.job_id) == job_id)
            .values(created_at=now() - timedelta(seconds=heartbeats.QUIET_S + 1))
        )


def types(api: RunningApi, job_id: str) -> list[str]:  # noqa: F811
    return [event["type"] for event in api.alice.events(job_id)]


def test_a_queued_job_that_no_trainer_holds_says_why_it_waits_to_who_asks(api: RunningApi) -> None:  # noqa: F811
    job_id = api.alice.create_rl_job(api.rl_payload())["job_id"]
    assert types(api, job_id) == ["rl.job.created"]
    with api.store.write() as session:
        jobs.explain_waiting(session, "local-cpu", [job_id], "the pool works on job_2")
    grow_quiet(api, job_id)
    _, beat = api.alice.events(job_id)
    assert (beat["type"], beat["seq"]) == (HEARTBEAT, 2)
    assert beat["message"] == "position 1 in pool local-cpu: the pool works on job_2"
    assert types(api, job_id) == ["rl.job.created", HEARTBEAT], "one is enough"


def test_superseded_heartbeats_go_and_seq_keeps_rising(api: RunningApi) -> None:  # noqa: F811
    job_id = api.alice.create_rl_job(api.rl_payload())["job_id"]
    after = 1
    for n in range(heartbeats.KEPT + 4):
        grow_quiet(api, job_id)
        (event,) = api.alice.events(job_id, since_seq=after)
        assert (event["type"], event["seq"]) == (HEARTBEAT, n + 2)
        after = event["seq"]
    assert types(api, job_id) == ["rl.job.created"] + heartbeats.KEPT * [HEARTBEAT]


def test_an_ended_job_is_quiet_for_ever(api: RunningApi) -> None:  # noqa: F811
    job_id = api.alice.create_rl_job(api.rl_payload())["job_id"]
    api.alice.cancel_job(job_id)
    grow_quiet(api, job_id)
    assert HEARTBEAT not in types(api, job_id)


def test_a_follower_is_sent_heartbeats_too(api: RunningApi) -> None:  # noqa: F811
    job_id = api.alice.create_rl_job(api.rl_payload())["job_id"]
    stream = api.alice.follow_events(job_id)
    next(stream)
    grow_quiet(api, job_id)
    assert next(stream)["type"] == HEARTBEAT
    api.alice.cancel_job(job_id)
    assert [event["type"] for event in stream] == ["rl.job.cancelled"]


def test_metrics_come_between_the_events_and_leave_the_cursor_alone(api: RunningApi) -> None:  # noqa: F811
    job_id = api.alice.create_rl_job(api.rl_payload())["job_id"]
    with api.store.write() as session:
        jobs.claim(session, job_id, "test")
        for step in (1, 2):
            metrics.write(session, "local", job_id, step, {"reward.mean": step / 2, "lr": 0.1}, "training")
    stream = api.alice.follow(job_id)
    first = [next(stream) for _ in range(5)]
    assert [(kind, data.get("step"), data.get("name")) for kind, data in first] == [
        ("event", None, None), ("metric", 1, "lr"), ("metric", 1, "reward.mean"),
        ("metric", 2, "lr"), ("metric", 2, "reward.mean"),
    ]  # fmt: skip
    with api.store.write() as session:
        metrics.write(session, "local", job_id, 3, {"lr": 0.1}, "training")
        jobs.move(session, job_id, JobStatus.SUCCEEDED)
    assert [(kind, data["step"]) for kind, data in stream] == [("metric", 3)]
    assert [data["seq"] for kind, data in api.alice.follow(job_id, since_seq=1) if kind == "event"] == []


def test_a_stream_resumes_both_cursors(api: RunningApi) -> None:  # noqa: F811
    job_id = api.alice.create_rl_job(api.rl_payload())["job_id"]
    with api.store.write() as session:
        for step in (1, 2):
            metrics.write(session, "local", job_id, step, {"lr": 0.1}, "training")
        jobs.add_event(session, "local", job_id, "rl.train.step", "two")
    api.alice.cancel_job(job_id)
    headers: dict[str, Any] = {"Authorization": f"Bearer {ALICE}", "Accept": "text/event-stream"}
    answer = httpx.get(
        f"{api.url}/jobs/{job_id}/events?metrics=1&after_step=1", headers=headers | {"Last-Event-ID": "2"}
    )
    messages = [message.split("\n") for message in answer.text.strip().split("\n\n")]
    assert messages[0][0] == "id: 3"
    assert json.loads(messages[0][1][6:])["type"] == "rl.job.cancelled"
    assert messages[1][0] == "event: metric"
    assert json.loads(messages[1][1][6:])["step"] == 2
    assert len(messages) == 2


def test_the_pools_are_told_with_their_topologies_and_limits(api: RunningApi) -> None:  # noqa: F811
    rows = {row["name"]: row for row in api.alice.pools()}
    assert list(rows) == list(pools())
    for name, pool in pools().items():
        assert rows[name]["topologies"] == list(pool.topologies)
        assert rows[name]["default_topology"] in rows[name]["topologies"]
        assert rows[name]["max_rollouts_per_iteration"] == pool.max_rollouts_per_iteration
