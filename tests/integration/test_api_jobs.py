from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from tests.integration.running_api import ALICE, RunningApi, api  # noqa: F401  (a fixture)

from headrace.client import ApiClient
from headrace.config.rl import RLConfig
from headrace.contracts.job import JobStatus
from headrace.errors import ConfigError, Conflict, NotFound, Unauthorized
from headrace.queue import names
from headrace.store import jobs
from headrace.store.tables import Checkpoint, Job, JobEvent, Metric

pytestmark = pytest.mark.integration


def finish(api: RunningApi, job_id: str, **fields: Any) -> None:  # noqa: F811
    with api.store.write() as session:
        timeline = jobs.claim(session, job_id, "test")
        jobs.move(session, job_id, JobStatus.SUCCEEDED, timeline=timeline, **fields)


def test_a_submitted_job_is_stored_with_its_config_and_wakes_its_pool(api: RunningApi) -> None:  # noqa: F811
    toml = "# mine\n"
    payload = api.rl_payload(config_toml=toml) | {"metadata": {"by": "alice"}}
    payload["data"]["config"] |= {"tags": {"team": "a"}, "data": {"level": 3}}
    job = api.alice.create_rl_job(payload)
    assert (job["status"], job["type"], job["pool"], job["iterations"]) == ("queued", "rl", "local-cpu", 10)
    assert (job["tags"], job["data"], job["metadata"]) == ({"team": "a"}, {"level": 3}, {"by": "alice"})
    assert api.redis.lrange(names.job_wakeup("local-cpu", "rl"), 0, -1) == [job["job_id"].encode()]
    config = api.alice.job_config(job["job_id"])
    assert (config["submitted"], config["toml"]) == (payload["data"]["config"], toml)
    assert RLConfig.model_validate(config["resolved"]).model.start == api.model
    (created,) = api.alice.events(job["job_id"])
    assert (created["seq"], created["type"]) == (1, "rl.job.created")


def test_the_model_of_the_request_is_in_the_resolved_config(api: RunningApi) -> None:  # noqa: F811
    payload = api.rl_payload(base_model=api.model)
    payload["data"]["config"]["model"] = {"base": "somewhere/else"}
    job = api.alice.create_rl_job(payload)
    assert api.alice.job_config(job["job_id"])["resolved"]["model"]["base"] == api.model


def test_one_idempotency_key_makes_one_job(api: RunningApi) -> None:  # noqa: F811
    payload = api.rl_payload()
    with ThreadPoolExecutor(6) as pool:
        made = list(pool.map(lambda _: api.alice.create_rl_job(payload, "once"), range(6)))
    assert len({job["job_id"] for job in made}) == 1
    assert len(api.alice.list_jobs()) == 1
    headers = {"Authorization": f"Bearer {ALICE}", "Idempotency-Key": "once"}
    again = httpx.post(f"{api.url}/rl/jobs", json=payload, headers=headers)
    assert again.status_code == 200
    with pytest.raises(Conflict, match="once"):
        api.alice.create_rl_job(api.rl_payload(endpoint_base_url="http://other"), "once")
    other = api.charlie.create_rl_job(payload, "once")
    assert other["job_id"] != made[0]["job_id"], "keys are each organisation's own"


def test_a_job_is_read_under_every_family_and_prefix(api: RunningApi) -> None:  # noqa: F811
    job_id = api.alice.create_rl_job(api.rl_payload())["job_id"]
    with httpx.Client(base_url=api.url, headers={"Authorization": f"Bearer {ALICE}"}) as http:
        for prefix in ("", "/api", "/api/v1"):
            for family in ("/jobs", "/rl/jobs", "/learning/jobs", "/sft/jobs", "/eval/jobs"):
                for part in ("", "/events", "/metrics", "/timeline", "/status", "/config", "/runs"):
                    answer = http.get(f"{prefix}{family}/{job_id}{part}")
                    assert answer.status_code == 200, answer.url
                    assert answer.headers["content-type"] == "application/json"
        assert http.post(f"/api/rl/jobs/{job_id}/start", json={}).json()["job_id"] == job_id
        assert [job["job_id"] for job in http.get("/rl/jobs").json()["jobs"]] == [job_id]
        assert http.get("/eval/jobs").json()["jobs"] == []


def test_a_queued_job_is_cancelled_at_once(api: RunningApi) -> None:  # noqa: F811
    job_id = api.alice.create_rl_job(api.rl_payload())["job_id"]
    assert api.bob.cancel_job(job_id)["status"] == "cancelled"
    assert api.alice.cancel_job(job_id)["status"] == "cancelled", "cancelling again is harmless"
    assert [event["type"] for event in api.alice.events(job_id)] == ["rl.job.created", "rl.job.cancelled"]
    assert not api.redis.exists(names.cancelled(job_id))
    phases = [phase["phase"] for phase in api.alice.timeline(job_id)]
    assert phases == ["queued", "cancelled"]


def test_a_running_job_is_asked_to_stop(api: RunningApi) -> None:  # noqa: F811
    job_id = api.alice.create_rl_job(api.rl_payload())["job_id"]
    with api.store.write() as session:
        assert jobs.claim(session, job_id, "trainer") == 1
    for _ in range(2):
        job = api.alice.cancel_job(job_id)
        assert (job["status"], job["cancel_requested"]) == ("running", True)
    assert api.redis.exists(names.cancelled(job_id))
    types = [event["type"] for event in api.alice.events(job_id)]
    assert types == ["rl.job.created", "rl.job.cancel_requested"]


def test_a_finished_job_cannot_be_cancelled(api: RunningApi) -> None:  # noqa: F811
    job_id = api.alice.create_rl_job(api.rl_payload())["job_id"]
    finish(api, job_id)
    with pytest.raises(Conflict, match="succeeded already"):
        api.alice.cancel_job(job_id)


def test_cancel_and_claim_at_once_leave_one_truth(api: RunningApi) -> None:  # noqa: F811
    ids = [api.alice.create_rl_job(api.rl_payload())["job_id"] for _ in range(6)]

    def claim(job_id: str) -> int | None:
        with api.store.write() as session:
            return jobs.claim(session, job_id, "trainer")

    with ThreadPoolExecutor(4) as pool:
        claims = [pool.submit(claim, job_id) for job_id in ids]
        cancels = [pool.submit(api.alice.cancel_job, job_id) for job_id in ids]
        outcomes = [(c.result(), a.result()) for c, a in zip(claims, cancels, strict=True)]
    for job_id, (timeline, answer) in zip(ids, outcomes, strict=True):
        job = api.alice.get_job(job_id)
        assert answer["status"] == job["status"]
        assert job["status"] == ("cancelled" if timeline is None else "running")
        assert job["cancel_requested"] == (timeline is not None)


def test_metrics_events_and_checkpoints_come_with_cursors(api: RunningApi) -> None:  # noqa: F811
    job_id = api.alice.create_rl_job(api.rl_payload())["job_id"]
    with api.store.write() as session:
        for step in (1, 2):
            for name in ("train.loss", "reward.mean"):
                session.add(Metric(job_id=job_id, name=name, step=step, org_id="local", value=step / 2))
        jobs.add_event(session, "local", job_id, "rl.train.step", "step 1", iteration=1)
        session.add(
            Checkpoint(
                checkpoint_id="ckpt_1", org_id="local", job_id=job_id, timeline=1, version=1, iteration=1,
                step=1, path=f"local/{job_id}/c1",
            )
        )  # fmt: skip
    points = api.alice.metrics(job_id, after_step=1)
    assert [(p["step"], p["name"], p["value"]) for p in points] == [
        (2, "reward.mean", 1.0), (2, "train.loss", 1.0)
    ]  # fmt: skip
    (step,) = api.alice.events(job_id, since_seq=1)
    assert (step["seq"], step["data"]) == (2, {"iteration": 1})
    (checkpoint,) = api.alice.checkpoints(job_id)
    assert checkpoint["path"] == str(api.settings.artifacts / f"local/{job_id}/c1")
    assert api.alice.ledger(job_id)["summary"] == {
        "planned": 0, "trained": 0, "not_trained": {}, "is_complete": True
    }  # fmt: skip


def test_events_are_streamed_until_the_job_has_ended(api: RunningApi) -> None:  # noqa: F811
    job_id = api.alice.create_rl_job(api.rl_payload())["job_id"]
    stream = api.alice.follow_events(job_id)
    assert next(stream)["seq"] == 1
    with api.store.write() as session:
        jobs.add_event(session, "local", job_id, "rl.train.step", "while it runs")
    assert next(stream)["message"] == "while it runs"
    api.alice.cancel_job(job_id)
    assert [event["type"] for event in stream] == ["rl.job.cancelled"]
    late = list(api.alice.follow_events(job_id, since_seq=2))
    assert [event["seq"] for event in late] == [3], "a stream resumes behind the last seq"


def test_a_stream_of_a_finished_job_gives_every_page(api: RunningApi) -> None:  # noqa: F811
    job_id = api.alice.create_rl_job(api.rl_payload())["job_id"]
    with api.store.write() as session:
        for number in range(450):
            jobs.add_event(session, "local", job_id, "rl.job.heartbeat", f"beat {number}")
    api.alice.cancel_job(job_id)
    assert [event["seq"] for event in api.alice.follow_events(job_id)] == list(range(1, 453))


def test_models_are_listed_and_can_be_trained_on(api: RunningApi) -> None:  # noqa: F811
    api.settings.models_toml.write_text(f'[models."Qwen/Qwen3-0.6B"]\npath = "{api.model}"\n')
    job_id = api.alice.create_rl_job(api.rl_payload(base_model="Qwen/Qwen3-0.6B"))["job_id"]
    assert [event["type"] for event in api.alice.events(job_id)][1] == "rl.model.mapped"
    name = f"ft:Qwen/Qwen3-0.6B:{job_id}"
    finish(api, job_id, model_id=name)
    assert [model["id"] for model in api.alice.models()] == [name, "Qwen/Qwen3-0.6B"]
    assert [model["id"] for model in api.charlie.models()] == ["Qwen/Qwen3-0.6B"]
    with httpx.Client(base_url=api.url, headers={"Authorization": f"Bearer {ALICE}"}) as http:
        assert http.get(f"/api/learning/models/{name}").json()["base_model"] == "Qwen/Qwen3-0.6B"
        assert http.get("/learning/models/rl").json()["data"][0]["job_id"] == job_id
    assert api.alice.get_job(job_id)["fine_tuned_model"] == name


def test_an_evaluation_takes_a_finished_evaluation_as_baseline(api: RunningApi) -> None:  # noqa: F811
    def payload(**spec: Any) -> dict[str, Any]:
        config = {"model": {"base": api.model}, "evaluation_job": {"task_url": "http://x", "seeds": [1, 2]}}
        config["evaluation_job"] |= spec
        return {"config": config, "strict": True}

    job = api.alice.create_eval_job(payload(samples=3))
    assert (job["type"], job["iterations"]) == ("eval", 6)
    assert api.redis.lrange(names.job_wakeup("local-cpu", "eval"), 0, -1) == [job["job_id"].encode()]
    with pytest.raises(ConfigError, match="queued"):
        api.alice.create_eval_job(payload(baseline=job["job_id"]))
    finish(api, job["job_id"])
    assert api.alice.create_eval_job(payload(baseline=job["job_id"]))["status"] == "queued"
    with pytest.raises(ConfigError, match="other seeds"):
        api.alice.create_eval_job(payload(baseline=job["job_id"], seeds=[1, 5]))
    with pytest.raises(ConfigError, match="does not exist"):
        api.charlie.create_eval_job(payload(baseline=job["job_id"]))
    with pytest.raises(ConfigError, match="does not exist"):
        api.alice.create_eval_job(payload(baseline="job_none"))


def test_jobs_are_listed_newest_first_and_filtered(api: RunningApi) -> None:  # noqa: F811
    first = api.alice.create_rl_job(api.rl_payload())["job_id"]
    payload = api.rl_payload()
    payload["data"]["config"]["tags"] = {"team": "b"}
    second = api.alice.create_rl_job(payload)["job_id"]
    api.alice.cancel_job(first)
    assert [job["job_id"] for job in api.alice.list_jobs()] == [second, first]
    assert [job["job_id"] for job in api.alice.list_jobs(status="cancelled")] == [first]
    assert [job["job_id"] for job in api.alice.list_jobs(tags={"team": "b"})] == [second]
    assert [job["job_id"] for job in api.alice.list_jobs(type="rl", model=api.model, limit=1)] == [second]


def test_an_outsider_sees_nothing(api: RunningApi) -> None:  # noqa: F811
    job_id = api.alice.create_rl_job(api.rl_payload())["job_id"]
    assert api.bob.get_job(job_id)["job_id"] == job_id
    assert api.charlie.list_jobs() == []
    for read in (
        api.charlie.get_job, api.charlie.events, api.charlie.metrics, api.charlie.timeline,
        api.charlie.checkpoints, api.charlie.job_config, api.charlie.ledger, api.charlie.rollouts,
        api.charlie.cancel_job, api.charlie.start_job, lambda id: list(api.charlie.follow_events(id)),
    ):  # fmt: skip
        with pytest.raises(NotFound, match=job_id):
            read(job_id)
    assert api.alice.get_job(job_id)["status"] == "queued"


def test_a_request_without_a_valid_key_is_refused_everywhere(api: RunningApi) -> None:  # noqa: F811
    for key in ("", "hr_unknown"):
        with ApiClient(api.url, key) as stranger:
            for call in (stranger.list_jobs, stranger.models, stranger.list_keys, stranger.list_files):
                with pytest.raises(Unauthorized, match="key"):
                    call()
            assert stranger.health()["status"] == "ok"
            assert stranger.ready()["status"] == "ready"
    with httpx.Client(base_url=api.url) as http:
        paths = http.get("/openapi.json").json()["paths"]
        assert len(paths) > 30
        for path in paths.keys() - {"/health", "/ready"}:
            for method in paths[path]:
                answers = [http.request(method, prefix + path) for prefix in ("", "/api", "/api/v1")]
                assert [answer.status_code for answer in answers] == [401] * 3, (method, path)


def test_a_database_row_holds_no_readable_key(api: RunningApi) -> None:  # noqa: F811
    content = b"".join(path.read_bytes() for path in api.settings.home.glob("headrace.db*"))
    assert b"hr_alice"[:7] in content, "the prefix is shown"
    assert ALICE.encode() not in content


def test_a_restart_keeps_everything(api: RunningApi) -> None:  # noqa: F811
    from tests.integration.running_api import serving

    job_id = api.alice.create_rl_job(api.rl_payload())["job_id"]
    with serving(api.settings) as url, ApiClient(url, ALICE) as again:
        assert again.get_job(job_id)["status"] == "queued"
        assert len(again.list_keys()) == 2
    with api.store.read() as session:
        assert session.get(Job, job_id) is not None
        assert session.get(JobEvent, (job_id, 1)) is not None
