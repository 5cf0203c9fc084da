"""A real worker process, real Valkey, a task app of the SDK, and a gateway that is faked over HTTP."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes.policy import FakePolicy, Refusal
from tests.fakes.server import serving
from tests.fakes.task_app import KEY, FakeTaskApp
from tests.fakes.worker import POOL, Job, until, working

from headrace import ids
from headrace.contracts.trajectory import Outcome
from headrace.queue import names
from headrace.queue.send import celery_app
from headrace.queue.streams import Verdict
from headrace.task_app import Action, Environment, StepResult, TaskApp

pytestmark = pytest.mark.integration


class Guess(Environment):
    """Right at "yes"; every answer is an event."""

    system = "Say yes."

    def reset(self, seed: int) -> str:
        return f"seed {seed}?"

    def step(self, action: Action) -> StepResult:
        is_right = action == "yes"
        return StepResult(
            "again?", reward=float(is_right), done=is_right, events={"said": float(len(action))}
        )


@pytest.fixture(scope="module")
def worker_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("worker")


@pytest.fixture(scope="module")
def _worker(_valkey_server: str, worker_home: Path) -> Iterator[None]:
    with working(_valkey_server, worker_home):
        yield


@pytest.fixture
def job(_worker: None, _valkey_server: str, worker_home: Path) -> Job:
    # A job per test on one worker: flushing Valkey would take the worker's queue away.
    return Job(_valkey_server, worker_home, job_id=ids.new_id("job"))


@pytest.fixture
def policy() -> Iterator[tuple[FakePolicy, str]]:
    fake = FakePolicy(script=("no", "yes"))
    with serving(fake.app) as url:
        yield fake, url


@pytest.fixture
def guess_url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("ENVIRONMENT_API_KEY", KEY)
    with serving(TaskApp(Guess, task_id="guess", version="1.2.3")) as url:
        yield url


def test_an_order_becomes_a_scored_trajectory_with_tokens_and_rewards(job, policy, guess_url):
    _, policy_url = policy
    job.share_keys("an-older-key", KEY)
    order = job.make_order(policy_url, guess_url)
    job.send(order)
    [entry] = job.wait_for(1)
    trajectory = entry.trajectory
    assert entry.verdict is Verdict.ACCEPTED, entry.trajectory.reason
    assert trajectory.outcome is Outcome.SCORED, trajectory.reason
    assert trajectory.rewards.outcome_reward == 1.0
    assert [(e.turn, e.call, e.key, e.value) for e in trajectory.rewards.event_rewards] == [
        (0, 0, "said", 2.0),
        (1, 1, "said", 3.0),
    ]
    assert [call.reply["content"] for call in trajectory.calls] == ["no", "yes"]
    assert trajectory.calls[1].parent == 0
    assert [(op.observation, op.action, op.reward, op.is_done) for op in trajectory.ops] == [
        ("seed 3?", "no", 0.0, False),
        ("again?", "yes", 1.0, True),
    ]
    assert trajectory.task_app.task_id == "guess"
    assert trajectory.task_app.version == "1.2.3"
    assert (trajectory.seed, trajectory.attempt, trajectory.is_truncated) == (3, 1, False)
    until(lambda: not job.client.exists(names.rollout_lease(job.job_id, order.rollout_id)))


def test_the_task_app_gets_every_key_and_the_rollouts_own_inference_url(job, policy):
    fake_policy, policy_url = policy
    app = FakeTaskApp()
    job.share_keys("first-key-000000", KEY)
    with serving(app.app) as task_url:
        job.send(job.make_order(policy_url, task_url, env_config={"split": "train"}))
        [entry] = job.wait_for(1)
    [headers], [body] = app.headers, app.requests
    assert headers["x-api-key"] == "first-key-000000"
    assert headers["x-api-keys"] == f"first-key-000000,{KEY}"
    assert headers["authorization"] == "Bearer first-key-000000"
    session_id = entry.trajectory.session_id
    assert body["run_id"] == body["policy"]["config"]["trace_correlation_id"] == session_id
    assert body["policy"]["config"]["inference_url"] == f"{policy_url}/rollout/{session_id}/v1"
    assert body["env"] == {"env_name": "sums", "seed": 3, "config": {"split": "train"}}
    assert "policy_id" not in body["policy"]
    assert fake_policy.sessions[session_id].is_ended


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("401", "refused the environment key"),
        ("500", "answered 500"),
        ("malformed", "not JSON"),
        ("a list", "JSON list, not an object"),
        ("nan", "metrics.mean_return = nan"),
        ("inf", "metrics.mean_return = inf"),
        ("text reward", "is no finite number"),
        ("missing", "has no reward"),
        ("wrong run_id", "answered for run_id 'trace_of_another'"),
        ("swallowed", "no call reached the policy"),
        ("no call", "no call reached the policy"),
        ("surrogate", "not Unicode"),
        ("deep", "cannot be kept"),
        ("writable but not readable", "cannot be kept"),
        ("slow", "did not answer in time"),
        ("dripping", "did not answer in time"),
    ],
)
def test_a_bad_answer_of_the_task_app_is_never_a_reward(job, policy, kind, said):
    _, policy_url = policy
    app = FakeTaskApp(kind)
    job.share_keys(KEY)
    with serving(app.app) as task_url:
        job.send(job.make_order(policy_url, task_url, deadline_s=2.0, failure_reward=-1.0))
        [entry] = job.wait_for(1)
    trajectory = entry.trajectory
    assert entry.verdict is Verdict.RECORD
    assert trajectory.outcome is Outcome.INFRA_FAILED
    assert trajectory.boundary == "task_app"
    assert said in trajectory.reason
    assert KEY not in trajectory.model_dump_json()
    assert trajectory.rewards.outcome_reward is None
    assert app.n_rollouts == 1


def test_a_task_app_that_is_down_is_an_infrastructure_failure(job, policy):
    _, policy_url = policy
    job.send(job.make_order(policy_url, "http://127.0.0.1:9"))
    [entry] = job.wait_for(1)
    assert entry.trajectory.outcome is Outcome.INFRA_FAILED
    assert "could not be reached" in entry.trajectory.reason


def test_an_overflow_of_the_context_is_the_policys_failure_with_the_apps_reward(job, policy, guess_url):
    fake, policy_url = policy
    fake.script = ("no", Refusal())
    job.share_keys(KEY)
    job.send(job.make_order(policy_url, guess_url, failure_reward=-9.0))
    [entry] = job.wait_for(1)
    assert entry.verdict is Verdict.ACCEPTED, entry.trajectory.reason
    assert entry.trajectory.outcome is Outcome.POLICY_FAILED
    assert entry.trajectory.rewards.outcome_reward == 0.0
    assert entry.trajectory.is_truncated
    assert "context_length_exceeded" in entry.trajectory.reason


@pytest.mark.parametrize("failure_reward", [-2.0, None])
def test_a_policy_failure_without_a_reward_takes_the_jobs_or_names_the_key(job, policy, failure_reward):
    fake, policy_url = policy
    fake.script = (Refusal(),)
    with serving(FakeTaskApp("500").app) as task_url:
        job.send(job.make_order(policy_url, task_url, failure_reward=failure_reward))
        [entry] = job.wait_for(1)
    trajectory = entry.trajectory
    if failure_reward is None:
        assert trajectory.outcome is Outcome.INFRA_FAILED
        assert trajectory.boundary == "policy"
        assert "[training.rollouts] failure_reward" in trajectory.reason
    else:
        assert trajectory.outcome is Outcome.POLICY_FAILED
        assert trajectory.rewards.outcome_reward == -2.0


def test_a_broken_engine_is_no_reward_even_where_the_app_gives_one(job, policy):
    fake, policy_url = policy
    fake.script = (Refusal(502, "engine_died", "the engine is gone", is_policy_fault=False),)
    with serving(FakeTaskApp("ok").app) as task_url:
        job.send(job.make_order(policy_url, task_url, failure_reward=0.0))
        [entry] = job.wait_for(1)
    assert entry.trajectory.outcome is Outcome.INFRA_FAILED
    assert entry.trajectory.boundary == "policy"
    assert "engine_died" in entry.trajectory.reason


def test_an_engine_that_starts_is_waited_for(job, policy, guess_url):
    fake, policy_url = policy
    fake.n_not_ready = 5
    job.share_keys(KEY)
    job.send(job.make_order(policy_url, guess_url))
    [entry] = job.wait_for(1)
    assert entry.trajectory.outcome is Outcome.SCORED


def test_an_engine_that_does_not_start_within_the_deadline_fails_the_attempt(job, policy, guess_url):
    fake, policy_url = policy
    fake.n_not_ready = 10_000
    job.send(job.make_order(policy_url, guess_url, deadline_s=1.0))
    [entry] = job.wait_for(1)
    assert entry.trajectory.outcome is Outcome.INFRA_FAILED
    assert entry.trajectory.boundary == "policy"
    assert "engine not ready" in entry.trajectory.reason


def test_cancelling_a_job_ends_the_rollout_that_waits(job, policy):
    fake, policy_url = policy
    with serving(FakeTaskApp("slow").app) as task_url:
        job.send(job.make_order(policy_url, task_url))
        until(lambda: fake.sessions)
        job.client.set(names.cancelled(job.job_id), "1")
        [entry] = job.wait_for(1, seconds=10)
    assert entry.trajectory.outcome is Outcome.CANCELLED
    assert next(iter(fake.sessions.values())).is_ended


def test_a_newer_timeline_ends_the_rollout_that_waits(job, policy):
    fake, policy_url = policy
    with serving(FakeTaskApp("slow").app) as task_url:
        job.send(job.make_order(policy_url, task_url))
        until(lambda: fake.sessions)
        job.client.set(names.timeline(job.job_id), "2")
        [entry] = job.wait_for(1, seconds=10)
    assert entry.verdict is Verdict.RECORD
    assert entry.trajectory.outcome is Outcome.CANCELLED


def test_a_lost_lease_ends_the_rollout_without_a_word(job, policy):
    fake, policy_url = policy
    with serving(FakeTaskApp("slow").app) as task_url:
        order = job.make_order(policy_url, task_url)
        job.send(order)
        until(lambda: fake.sessions)
        job.client.set(names.rollout_lease(job.job_id, order.rollout_id), "1/another")
        until(lambda: next(iter(fake.sessions.values())).is_ended)
    assert job.reader.read_new(block_s=0.5) == []
    assert job.client.get(names.rollout_lease(job.job_id, order.rollout_id)) == b"1/another"


def test_a_living_player_of_an_older_timeline_is_waited_for(job, policy, guess_url):
    """It plays attempt 1, too, and renews its lease until it notices; the new order must outlast it."""
    _, policy_url = policy
    job.share_keys(KEY)
    order = job.make_order(policy_url, guess_url, timeline=2)
    job.client.set(names.timeline(job.job_id), 2)
    lease = names.rollout_lease(job.job_id, order.rollout_id)
    job.client.set(lease, f"{names.attempt_label(1, 1)}/another", px=1500)
    job.send(order)
    for _ in range(3):
        time.sleep(0.6)
        job.client.pexpire(lease, 1500)
    job.client.delete(lease)
    [entry] = job.wait_for(1)
    assert entry.verdict is Verdict.ACCEPTED, entry.trajectory.reason


def test_orders_that_are_not_wanted_are_no_ops(job, policy, guess_url):
    fake, policy_url = policy
    job.share_keys(KEY)
    stale = job.make_order(policy_url, guess_url, member=0, timeline=9)
    replaced = job.make_order(policy_url, guess_url, member=1, attempt=1)
    job.send(stale)
    job.send(replaced.model_copy(update={"attempt": 2}))
    job.wait_for(1)  # attempt 2; attempt 1 is delivered late:
    celery_app(job.url).send_task(
        names.ROLLOUT_TASK, args=[replaced.model_dump(mode="json")], queue=names.rollout_queue(POOL)
    )
    last = job.make_order(policy_url, guess_url, member=2)
    job.send(last)
    entries = job.wait_for(2)
    assert [entry.trajectory.rollout_id for entry in entries] == [replaced.rollout_id, last.rollout_id]
    assert len(fake.sessions) == 2


def test_an_order_that_is_none_is_dropped_and_the_worker_goes_on(job, policy, guess_url):
    _, policy_url = policy
    job.share_keys(KEY)
    app = celery_app(job.url)
    for payload in ({"nonsense": True}, "text", None):
        app.send_task(names.ROLLOUT_TASK, args=[payload], queue=names.rollout_queue(POOL))
    app.send_task(names.ROLLOUT_TASK, args=[], queue=names.rollout_queue(POOL))
    job.send(job.make_order(policy_url, guess_url))
    [entry] = job.wait_for(1)
    assert entry.trajectory.outcome is Outcome.SCORED
    assert job.queue_length() == 0


def test_the_same_order_twice_gives_one_trajectory(job, policy, guess_url):
    fake, policy_url = policy
    fake.latency_s = 0.3
    job.share_keys(KEY)
    order = job.make_order(policy_url, guess_url)
    job.send(order)
    job.send(order)
    job.wait_for(1)
    other = job.make_order(policy_url, guess_url, member=1)
    job.send(other)
    entries = job.wait_for(2)
    assert [entry.trajectory.rollout_id for entry in entries] == [order.rollout_id, other.rollout_id]
    assert job.reader.read_new(block_s=0.5) == []


def test_a_worker_without_the_secret_key_blames_itself(job, policy, guess_url):
    _, policy_url = policy
    job.client.rpush(names.environment_keys(job.job_id), b"sealed under another key, far too long " * 3)
    job.send(job.make_order(policy_url, guess_url))
    [entry] = job.wait_for(1)
    assert entry.trajectory.outcome is Outcome.INFRA_FAILED
    assert entry.trajectory.boundary == "worker"
    assert "HEADRACE_SECRET_KEY" in entry.trajectory.reason


def test_a_job_that_wants_no_traces_keeps_tokens_and_rewards_only(job, policy, guess_url):
    _, policy_url = policy
    job.share_keys(KEY)
    job.send(job.make_order(policy_url, guess_url, record_trace=False))
    [entry] = job.wait_for(1)
    trajectory = entry.trajectory
    assert trajectory.rewards.outcome_reward == 1.0
    assert all(len(call.sampled_ids) and call.reply is None for call in trajectory.calls)
    assert "seed 3?" not in trajectory.model_dump_json()
