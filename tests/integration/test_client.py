"""`headrace.Client`, as a notebook uses it, against a running API."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import pytest
from tests.conftest import free_port
from tests.fakes.server import serving
from tests.integration.calling import as_alice, claim, end, measure, played
from tests.integration.running_api import ALICE, RunningApi, api  # noqa: F401

from headrace import Client
from headrace.client.job import StillRunning
from headrace.contracts.job import JobStatus, JobType
from headrace.errors import ConfigError, JobFailed, Unauthorized, Unavailable

pytestmark = pytest.mark.integration

CHAT = '{"messages": [{"role": "user", "content": "2+2"}, {"role": "assistant", "content": "4"}]}\n'


@pytest.fixture
def client(api: RunningApi, monkeypatch, tmp_path):  # noqa: F811
    as_alice(api, monkeypatch, tmp_path)
    with Client() as client:
        yield client


def config(api: RunningApi) -> dict:  # noqa: F811
    return {"services": {"task_url": "http://127.0.0.1:9"}, "model": {"base": api.model}}


def test_a_toml_file_and_a_dictionary_are_submitted_with_overrides(client: Client, api: RunningApi):  # noqa: F811
    Path("rl.toml").write_text(
        f'[services]\ntask_url = "http://127.0.0.1:9"\n[model]\nbase = "{api.model}"\n[rollout]\nmax_turns = 3\n'
    )
    job = client.submit("rl.toml", idempotency_key="once")
    assert (job.type, job.status, job.model) == (JobType.RL, JobStatus.QUEUED, api.model)
    assert client.job_config(job.id)["toml"] == Path("rl.toml").read_text()
    assert client.submit("rl.toml", idempotency_key="once").id == job.id
    other = client.submit(config(api), training={"learning_rate": 2e-5}, tags={"team": "red"})
    assert client.job_config(other.id)["resolved"]["training"]["learning_rate"] == 2e-5
    assert [found.id for found in client.jobs(tags={"team": "red"})] == [other.id]


def test_an_unknown_key_and_a_config_of_no_kind_are_refused(client: Client, api: RunningApi):  # noqa: F811
    with pytest.raises(ConfigError, match="did you mean `learning_rate`"):
        client.submit(config(api), training={"learning_rat": 1})
    with pytest.raises(ConfigError, match="does not say what job it is"):
        client.submit({"model": {"base": "tiny"}})
    with pytest.raises(ConfigError, match=r"none\.toml cannot be read"):
        client.submit("none.toml")


def test_an_sft_job_uploads_its_dataset_first(client: Client, api: RunningApi):  # noqa: F811
    sft = {"algorithm": {"type": "offline"}, "job": {"model": api.model, "data": "train.jsonl"}}
    with pytest.raises(ConfigError, match=r"\[job\] data = 'train.jsonl' does not exist"):
        client.submit(sft)
    Path("train.jsonl").write_text(CHAT)
    job = client.submit(sft)
    assert (job.type, job.status) == (JobType.SFT, JobStatus.QUEUED)
    assert [file["filename"] for file in client.list_files()] == ["train.jsonl"]


def test_wait_returns_the_job_once_it_has_succeeded(client: Client, api: RunningApi):  # noqa: F811
    job = client.submit(config(api))
    assert job.model_id is None
    with pytest.raises(StillRunning, match=f"job {job.id} is still queued after 0.05 s"):
        job.wait(timeout_s=0.05, interval_s=0.01)
    claim(api, job.id)
    done = threading.Timer(
        0.2, end, (api, job.id, JobStatus.SUCCEEDED), {"model_id": "ft:tiny:x", "result": {"a": 1}}
    )
    done.start()
    assert job.wait(interval_s=0.02) is job
    assert (job.status, job.model_id, job.result) == (JobStatus.SUCCEEDED, "ft:tiny:x", {"a": 1})


def test_wait_raises_with_the_reason_of_a_failed_job_and_resume_queues_it(client: Client, api: RunningApi):  # noqa: F811
    job = client.submit(config(api))
    claim(api, job.id)
    end(api, job.id, JobStatus.FAILED, error="the disk is full")
    with pytest.raises(JobFailed, match=f"job {job.id} failed: the disk is full"):
        job.wait()
    assert "the disk is full" in repr(job)
    assert job.resume().status is JobStatus.QUEUED
    assert job.cancel().status is JobStatus.CANCELLED
    copy = job.clone({"training.learning_rate": 3e-5})
    assert copy.id != job.id
    assert client.job_config(copy.id)["resolved"]["training"]["learning_rate"] == 3e-5


def test_metrics_rewards_and_rollouts_are_rows(client: Client, api: RunningApi):  # noqa: F811
    job = client.submit(config(api))
    measure(api, job.id, 1, reward_mean=0.25, train_loss=2.0)
    measure(api, job.id, 2, reward_mean=0.5)
    rollouts = played(api, job.id, 0.0, 1.0)
    rows = job.metrics()
    assert rows == [{"step": 1, "reward.mean": 0.25, "train.loss": 2.0}, {"step": 2, "reward.mean": 0.5}]
    assert rows.column("train.loss") == [2.0, None]
    assert job.metrics("reward.mean")[0] == {"step": 1, "reward.mean": 0.25}
    assert job.rewards()[0]["reward_mean"] == 0.5
    assert [(row["rollout_id"], row["outcome_reward"]) for row in job.rollouts("train")] == list(
        zip(rollouts, (0.0, 1.0), strict=True)
    )


def test_a_frame_needs_pandas_and_says_so(monkeypatch):
    from headrace.client.rows import Rows

    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(Unavailable, match="pip install pandas"):
        Rows([{"a": 1}]).frame()


def test_good_episodes_become_an_sft_dataset_that_the_api_takes(client: Client, api: RunningApi):  # noqa: F811
    import json

    job = client.submit(config(api))
    played(api, job.id, 0.0, 1.0)
    records = list(job.conversations(min_reward=0.5))
    assert records == [
        {
            "messages": [
                {"role": "user", "content": "question 1"}, {"role": "assistant", "content": "answer 1"}
            ],
            "tools": [{"name": "move"}],
        }
    ]  # fmt: skip
    Path("good.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    assert client.get_file(client.upload("good.jsonl"))["n_rows"] == 1


def test_events_are_followed_to_the_end_of_the_job(client: Client, api: RunningApi):  # noqa: F811
    job = client.submit(config(api))
    claim(api, job.id)
    threading.Timer(0.3, end, (api, job.id, JobStatus.SUCCEEDED)).start()
    seen = [event["seq"] for event in job.follow()]
    assert seen == [event["seq"] for event in client.events(job.id)]
    assert job.status is JobStatus.SUCCEEDED


def test_chat_sends_a_conversation_and_returns_the_text(monkeypatch):
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    async def answer(request: Request) -> JSONResponse:
        body = await request.json()
        text = f"{body['model']} {body['messages'][-1]['content']} {body.get('temperature')}"
        return JSONResponse({"choices": [{"message": {"role": "assistant", "content": text}}]})

    app = Starlette(routes=[Route("/api/v1/inference/v1/chat/completions", answer, methods=["POST"])])
    with serving(app) as url, Client(url, "hr_x") as client:
        assert client.chat("ft:tiny:job", "go") == "ft:tiny:job go None"
        assert client.chat("tiny", [{"role": "user", "content": "left"}], temperature=0.5) == "tiny left 0.5"
        with pytest.raises(ConfigError, match="once it has succeeded"):
            client.chat(None, "go")


def test_without_an_address_the_local_stack_is_found_with_its_key(api: RunningApi, monkeypatch, tmp_path):  # noqa: F811
    for name in ("HEADRACE_API_URL", "HEADRACE_API_KEY", "SYNTH_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "stack"
    home.mkdir()
    monkeypatch.setenv("HEADRACE_HOME", str(home))
    with pytest.raises(Unavailable, match="headrace up"):
        Client()
    (home / "state.json").write_text(f'{{"addresses": {{"api": "{api.url}"}}}}')
    with pytest.raises(Unauthorized, match="HEADRACE_API_KEY"):
        Client()
    (home / "api_key").write_text(ALICE + "\n")
    with Client() as found:
        assert found.jobs() == []
    with pytest.raises(Unauthorized):  # the local key is for this machine only
        Client("https://api.example.org")


def test_an_api_that_is_away_for_a_moment_is_asked_again(api: RunningApi, monkeypatch, tmp_path):  # noqa: F811
    as_alice(api, monkeypatch, tmp_path)
    with Client() as client:
        job = client.submit(config(api))
    with Client(f"http://127.0.0.1:{free_port()}", ALICE) as away:
        job._client = away
        began = time.monotonic()
        with pytest.raises(StillRunning):
            job.wait(timeout_s=0.1, interval_s=0.02)
        assert time.monotonic() >= began + 0.1
