"""Workers that are killed, stopped or cut off from Valkey: no order is lost and none counts twice."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes.policy import FakePolicy
from tests.fakes.server import serving
from tests.fakes.task_app import FakeTaskApp
from tests.fakes.worker import Job, start_worker, until, working

from headrace.contracts.trajectory import Outcome
from headrace.queue import names
from headrace.queue.alive import alive_key
from headrace.queue.streams import Verdict

pytestmark = pytest.mark.integration


@pytest.fixture
def job(valkey_url: str, tmp_path: Path) -> Job:
    return Job(valkey_url, tmp_path)


@pytest.fixture
def policy() -> Iterator[tuple[FakePolicy, str]]:
    fake = FakePolicy()
    with serving(fake.app) as url:
        yield fake, url


def test_an_order_delivered_again_after_a_kill_is_accepted_once(job, policy):
    fake, policy_url = policy
    app = FakeTaskApp("slow")
    with serving(app.app) as task_url:
        order = job.make_order(policy_url, task_url)
        with working(job.url, job.home) as victim:
            job.send(order)
            until(lambda: app.n_rollouts == 1)
            victim.send_signal(signal.SIGKILL)
            victim.wait()
        app.kind = "ok"
        with working(job.url, job.home):
            # The dead worker's lease is still there; both deliveries find it.
            assert job.client.exists(names.rollout_lease(job.job_id, order.rollout_id))
            job.send(order)
            job.send(order)
            entries = job.wait_for(1, seconds=40)
            until(lambda: not job.client.exists(names.rollout_lease(job.job_id, order.rollout_id)))
            until(lambda: job.queue_length() == 0)
            entries = entries + job.reader.read_new(block_s=2)
    accepted = [entry for entry in entries if entry.verdict is Verdict.ACCEPTED]
    assert len(entries) == len(accepted) == 1
    assert accepted[0].trajectory.outcome is Outcome.SCORED
    assert app.n_rollouts == 2
    assert len(fake.sessions) == 2


def test_a_later_attempt_takes_over_from_a_worker_that_still_plays_the_earlier(job, policy):
    _, policy_url = policy
    app = FakeTaskApp("slow")
    with serving(app.app) as task_url, working(job.url, job.home):
        order = job.make_order(policy_url, task_url)
        job.send(order)
        until(lambda: app.n_rollouts == 1)
        app.kind = "ok"
        job.send(order.model_copy(update={"attempt": 2}))
        [entry] = job.wait_for(1)
    assert entry.verdict is Verdict.ACCEPTED
    assert entry.trajectory.attempt == 2


def test_sigterm_lets_a_short_rollout_finish(job, policy):
    fake, policy_url = policy
    fake.latency_s = 1.5
    app = FakeTaskApp("ok")
    with serving(app.app) as task_url, working(job.url, job.home) as worker:
        job.send(job.make_order(policy_url, task_url))
        until(lambda: fake.n_in_flight)
        worker.send_signal(signal.SIGTERM)
        [entry] = job.wait_for(1)
        assert worker.wait(timeout=15) == 0
    assert entry.trajectory.outcome is Outcome.SCORED
    assert job.queue_length() == 0


def test_sigterm_gives_a_long_rollout_back_to_the_queue_within_a_bound(job, policy):
    fake, policy_url = policy
    app = FakeTaskApp("slow")
    with serving(app.app) as task_url:
        with working(job.url, job.home) as worker:
            order = job.make_order(policy_url, task_url, deadline_s=60.0)
            job.send(order)
            until(lambda: app.n_rollouts == 1)
            worker.send_signal(signal.SIGTERM)
            worker.wait(timeout=15)  # the rollout would take 30 s; the promised bound is 10
        assert not job.client.exists(names.rollout_lease(job.job_id, order.rollout_id))
        assert next(iter(fake.sessions.values())).is_ended
        app.kind = "ok"
        with working(job.url, job.home):
            [entry] = job.wait_for(1)
    assert entry.verdict is Verdict.ACCEPTED
    assert len(fake.sessions) == 2


def test_a_worker_shows_that_it_is_alive_and_takes_the_mark_away_when_it_stops(job):
    pattern = alive_key("worker:*")
    with working(job.url, job.home) as worker:
        [key] = job.client.scan_iter(match=pattern)
        assert json.loads(job.client.get(key))["pid"] == worker.pid
    assert list(job.client.scan_iter(match=pattern)) == []


def test_a_worker_without_a_valkey_says_so_and_does_not_hang(tmp_path):
    process = start_worker("redis://127.0.0.1:9/0", tmp_path)
    try:
        until(lambda: b"127.0.0.1:9" in (tmp_path / "worker.log").read_bytes())
    finally:
        process.terminate()
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()
            pytest.fail("the worker did not stop on SIGTERM")
