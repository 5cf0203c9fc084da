"""The reference client's recorded requests against a live API, and what the client reads from the answers.

`tests/e2e/test_reference_client.py` records them from the client as published; nothing of it runs here.
"""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from nacl.public import PublicKey, SealedBox
from tests.e2e.reference_requests import load
from tests.fakes.server import serving
from tests.integration.running_api import ALICE, RunningApi, api  # noqa: F401  (a fixture)

from examples.walk.app import app as walk
from headrace.contracts.job import JobStatus
from headrace.store import jobs, metrics

pytestmark = pytest.mark.integration

NAME = "Qwen/Qwen3-0.6B"
ENVIRONMENT_KEY = "7e" * 32
TERMINAL = {"succeeded", "failed", "cancelled", "canceled", "completed"}
"""Statuses at which the client's command stops; it polls on at any other word."""
SUCCESS_EVENTS = {
    *("rl.job.completed", "rl.train.completed", "workflow.completed"),
    *("sft.completed", "sft.workflow.completed", "sft.job.completed", "training.completed"),
}


class Client:
    """Sends recorded requests, with this run's addresses and ids in the places of the recorded ones."""

    def __init__(self, url: str, prefix: str = "/api", **values: str) -> None:
        self.http = httpx.Client(base_url=url, timeout=30, trust_env=False)
        self.prefix, self.values = prefix, {"key": ALICE, **values}

    def send(self, recorded: dict[str, Any]) -> httpx.Response:
        one = json.loads(self._filled(json.dumps(recorded)))
        path = one["path"].replace("/api", self.prefix, 1)
        headers = {name: value for name, value in one["headers"].items() if name != "content-type"}
        more: dict[str, Any] = {"params": one.get("query"), "headers": headers}
        if "form" in one:
            more["data"] = {part["name"]: part["text"] for part in one["form"] if "filename" not in part}
            more["files"] = {
                part["name"]: (part["filename"], part["text"].encode(), part["content_type"])
                for part in one["form"]
                if "filename" in part
            }
        elif "body" in one:
            more["json"] = one["body"]
        return self.http.request(one["method"], path, **more)

    def _filled(self, text: str) -> str:
        for name, value in self.values.items():
            text = text.replace(f"{{{name}}}", value)
        return text


def body_of(answer: httpx.Response) -> dict[str, Any]:
    """An answer as the client takes it: no redirect, and JSON only by its content type."""
    assert answer.status_code < 300, answer.text
    assert answer.headers["content-type"].startswith("application/json")
    return answer.json()


def created(answer: httpx.Response) -> str:
    """Only 200 and 201 count as created."""
    assert answer.status_code in (200, 201), answer.text
    told = body_of(answer)
    job_id = told.get("job_id") or told.get("id")
    assert job_id
    return job_id


@pytest.fixture(scope="module")
def task_url() -> Iterator[str]:
    with serving(walk) as url:
        yield url


@pytest.fixture
def backend(api: RunningApi) -> RunningApi:  # noqa: F811
    """An API whose operator maps the client's model name to a folder."""
    api.settings.models_toml.write_text(f'[models."{NAME}"]\npath = "{api.model}"\n')
    return api


def finish(backend: RunningApi, job_id: str) -> str:
    """Bring a job to its end as a trainer does; returns its model id."""
    model_id = f"ft:{NAME}:{job_id}"
    kind = backend.alice.get_job(job_id)["type"]
    with backend.store.write() as session:
        timeline = jobs.claim(session, job_id, "test")
        row = jobs.get_job(session, None, job_id)
        for step in (1, 2):
            metrics.write(
                session, row.org_id, job_id, step, {"train.loss": 1.0 / step, "reward.mean": 0.5}, "training"
            )
        told = f"finished as {model_id}"
        event = f"{kind}.job.completed"
        jobs.add_event(session, row.org_id, job_id, event, told, fine_tuned_model=model_id)
        jobs.move(session, job_id, JobStatus.SUCCEEDED, timeline=timeline, model_id=model_id)
    return model_id


@pytest.mark.parametrize("prefix", ["/api", "/api/v1", ""])
def test_rl_training_under_every_prefix(backend: RunningApi, task_url: str, prefix: str):
    verify, submit, poll = load("train_rl")
    backend.alice.upload_environment_key(ENVIRONMENT_KEY)
    client = Client(backend.url, prefix, task_url=task_url)
    verification = body_of(client.send(verify))
    assert verification["any_ok"]
    assert "candidates_first15" in verification
    assert [attempt["status"] for attempt in verification["attempts"]].count(200) >= 1

    client.values["job_0"] = created(client.send(submit))
    job = body_of(client.send(poll))
    assert job["status"] == "queued"
    assert job["model"] == NAME
    model_id = finish(backend, client.values["job_0"])
    job = body_of(client.send(poll))
    assert job["status"] in TERMINAL
    assert job["fine_tuned_model"] == model_id


def test_rl_with_one_idempotency_key_is_one_job_and_another_body_a_conflict(
    backend: RunningApi, task_url: str
):
    _, submit, _ = load("train_rl")
    client = Client(backend.url, task_url=task_url)
    first, again = client.send(submit), client.send(submit)
    assert again.status_code == 200
    assert created(again) == created(first)
    submit["body"]["data"]["config"]["training"]["learning_rate"] = 1.0
    assert client.send(submit).status_code == 409
    assert len(backend.alice.list_jobs()) == 1


def test_the_model_of_the_request_wins_over_the_one_in_its_config(backend: RunningApi, task_url: str):
    """`--model` leaves `data.config.model` as it was in the file."""
    _, submit, _ = load("train_rl")
    client = Client(backend.url, task_url=task_url)
    model_id = finish(backend, created(client.send(submit)))
    folder = backend.settings.home / "checkpoint"
    shutil.copytree(backend.model, folder)
    del submit["headers"]["idempotency-key"], submit["body"]["data"]["base_model"]
    submit["body"]["data"]["model"] = str(folder)
    assert backend.alice.get_job(created(client.send(submit)))["model"] == str(folder)
    assert model_id


def test_a_recorded_config_names_what_had_no_effect_and_trains_with_the_loss_it_asks_for(
    backend: RunningApi, task_url: str
):
    """The client lets no other `variety` through than gspo."""
    _, submit, _ = load("train_rl")
    job_id = created(Client(backend.url, task_url=task_url).send(submit))
    told = {event["type"]: event["message"] for event in backend.alice.events(job_id)}
    assert "rl.config.not_used" in told
    resolved = backend.alice.job_config(job_id)
    assert resolved["submitted"]["algorithm"]["variety"] == "gspo"
    assert resolved["resolved"]["training"]["loss"] == "gspo"


def test_sft_training_with_a_validation_file(backend: RunningApi):
    upload, upload_validation, look, submit, start, poll = load("train_sft")
    client = Client(backend.url)
    for name, one in (("file_0", upload), ("file_1", upload_validation)):
        answer = body_of(client.send(one))
        client.values[name] = answer["id"]
    state = body_of(client.send(look))
    assert state["status"] in ("ready", "uploaded", "stored", "complete")

    client.values["job_0"] = created(client.send(submit))
    assert client.send(start).status_code in (200, 201)
    assert body_of(client.send(poll))["status"] == "queued"
    data = backend.alice.get_job(client.values["job_0"])["data"]
    assert data["validation_file_id"] == client.values["file_1"]
    model_id = finish(backend, client.values["job_0"])
    job = body_of(client.send(poll))
    assert (job["status"], job["fine_tuned_model"]) == ("succeeded", model_id)


def requests_of(name: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Recorded requests by method and path; of equal ones the last."""
    return {(one["method"], one["path"]): one for one in load(name)}


def test_the_rl_class_creates_starts_and_follows_a_job(backend: RunningApi, task_url: str):
    sdk = requests_of("sdk")
    client = Client(backend.url, task_url=task_url)
    client.values["job_0"] = created(client.send(sdk["POST", "/api/rl/jobs"]))
    start = client.send(sdk["POST", "/api/rl/jobs/{job_0}/start"])
    assert start.status_code == 404 or isinstance(body_of(start), dict)
    job = body_of(client.send(sdk["GET", "/api/learning/jobs/{job_0}"]))
    assert (job["job_id"], job["status"]) == (client.values["job_0"], "queued")
    model_id = finish(backend, client.values["job_0"])
    _follow_as_the_pollers_do(client, sdk, "job_0", model_id)


def _follow_as_the_pollers_do(
    client: Client, sdk: dict[tuple[str, str], dict[str, Any]], job: str, model_id: str
) -> None:
    """Sequence numbers start at 1 and rise, steps start at 1, and the end is told by an event."""
    path = f"/api/learning/jobs/{{{job}}}"
    events = body_of(client.send(sdk["GET", f"{path}/events"]))["events"]
    seqs = [event["seq"] for event in events]
    assert seqs[0] == 1
    assert seqs == sorted(set(seqs))
    assert {event["type"] for event in events} & SUCCESS_EVENTS
    assert model_id in [(event["data"] or {}).get("fine_tuned_model") for event in events]
    assert all({"type", "message", "level", "created_at"} <= event.keys() for event in events)
    assert all(event["job_id"] == client.values[job] for event in events)
    points = body_of(client.send(sdk["GET", f"{path}/metrics"]))["points"]
    assert [point["step"] for point in points] == sorted(point["step"] for point in points)
    assert min(point["step"] for point in points) == 1
    later = sdk["GET", f"{path}/events"] | {"query": {"since_seq": str(seqs[-1]), "limit": "200"}}
    assert body_of(client.send(later))["events"] == []


def test_the_learning_classes_upload_create_and_follow_a_job(backend: RunningApi):
    sdk = requests_of("sdk")
    client = Client(backend.url)
    client.values["file_0"] = body_of(client.send(sdk["POST", "/api/learning/files"]))["id"]
    client.values["file_1"] = client.values["file_0"]
    client.values["job_1"] = created(client.send(sdk["POST", "/api/learning/jobs"]))
    assert isinstance(body_of(client.send(sdk["POST", "/api/learning/jobs/{job_1}/start"])), dict)
    model_id = finish(backend, client.values["job_1"])
    _follow_as_the_pollers_do(client, sdk, "job_1", model_id)
    timeline = body_of(client.send(sdk["GET", "/api/learning/jobs/{job_1}/timeline"]))["events"]
    assert isinstance(timeline, list)
    models = body_of(client.send(sdk["GET", "/api/learning/models"]))["data"]
    [mine] = [model for model in models if model["id"] == model_id]
    assert (mine["base_model"], mine["job_id"]) == (NAME, client.values["job_1"])


@pytest.mark.parametrize("kind", ["rl", "learning"])
def test_events_stream_as_the_client_reads_them(backend: RunningApi, task_url: str, kind: str):
    """Lines `data: {json}`; comments and other fields are skipped."""
    _, submit, _ = load("train_rl")
    client = Client(backend.url, task_url=task_url)
    client.values["job_2"] = created(client.send(submit))
    finish(backend, client.values["job_2"])
    recorded = requests_of("sdk")["GET", f"/api/{kind}/jobs/{{job_2}}/events"]
    headers = {"accept": recorded["headers"]["accept"], "authorization": f"Bearer {ALICE}"}
    path = recorded["path"].replace("{job_2}", client.values["job_2"])
    heard: list[dict[str, Any]] = []
    with client.http.stream("GET", path, params=recorded["query"], headers=headers) as stream:
        assert stream.status_code == 200
        for line in stream.iter_lines():
            if line.startswith("data:"):
                heard.append(json.loads(line[5:]))
            if heard and heard[-1].get("type") == "rl.job.completed":
                break
    assert heard[0]["seq"] == 1
    assert heard == backend.alice.events(client.values["job_2"])[: len(heard)]


def test_an_environment_key_is_stored_sealed(backend: RunningApi):
    sdk = requests_of("sdk")
    client = Client(backend.url)
    told = body_of(client.send(sdk["GET", "/api/v1/crypto/public-key"]))
    assert told.get("alg") in (None, "libsodium.sealedbox.v1")
    sealed = SealedBox(PublicKey(base64.b64decode(told["public_key"], validate=True))).encrypt(
        ENVIRONMENT_KEY.encode()
    )
    store = sdk["POST", "/api/v1/env-keys"]
    store["body"]["ciphertext_b64"] = base64.b64encode(sealed).decode()
    assert {"id", "name", "updated_at"} <= body_of(client.send(store)).keys()
    verify = {"method": "GET", "path": "/api/v1/env-keys/verify", "headers": store["headers"]}
    assert body_of(client.send(verify))["present"] is True
    listed = backend.alice.list_environment_keys()
    assert ENVIRONMENT_KEY not in json.dumps(listed)
    assert ENVIRONMENT_KEY.startswith(listed[0]["prefix"])


def test_the_health_route_answers_json(backend: RunningApi):
    assert isinstance(body_of(Client(backend.url).send(requests_of("sdk")["GET", "/api/health"])), dict)


def test_a_trained_model_that_no_engine_can_serve_now_is_no_404(backend: RunningApi, task_url: str):
    """The inference route exists and knows the model; without an engine it says to come again."""
    _, submit, _ = load("train_rl")
    client = Client(backend.url, task_url=task_url)
    client.values["job_0"] = created(client.send(submit))
    [ask] = load("ask")
    unknown = client.send(ask)
    assert unknown.status_code in (400, 404)
    assert NAME in unknown.text


# Later clients, by what the contract says of them (0.2.17 and 0.2.19); these were not recorded.


def get(client: Client, path: str, **query: str) -> dict[str, Any]:
    headers = {"authorization": "Bearer {key}", "accept": "*/*"}
    return body_of(client.send({"method": "GET", "path": path, "headers": headers, "query": query}))


@pytest.fixture
def done(backend: RunningApi, task_url: str) -> tuple[Client, str]:
    """A client and a finished job."""
    client = Client(backend.url, task_url=task_url)
    job_id = created(client.send(load("train_rl")[1]))
    finish(backend, job_id)
    return client, job_id


def test_later_clients_list_and_look_at_jobs(done: tuple[Client, str]):
    client, job_id = done
    listed = get(client, "/api/learning/jobs", status="succeeded", type="rl", limit="5")
    assert [job["job_id"] for job in listed["jobs"]] == [job_id]
    status = get(client, f"/api/learning/jobs/{job_id}/status")
    assert {"job_id", "status", "progress", "updated_at"} <= status.keys()
    assert isinstance(get(client, f"/api/learning/jobs/{job_id}/config"), dict)
    timeline = get(client, f"/api/learning/jobs/{job_id}/timeline", limit="50")
    assert timeline["events"]
    assert all({"phase", "created_at"} <= entry.keys() for entry in timeline["events"])
    [run] = get(client, f"/api/jobs/{job_id}/runs")["runs"]
    assert {"run_number", "status", "created_at", "started_at", "ended_at"} <= run.keys()
    models = get(client, "/api/learning/models", limit="5")
    assert models["models"] == models["data"]
    assert get(client, f"/api/learning/models/ft:{NAME}:{job_id}")["id"] == f"ft:{NAME}:{job_id}"


def test_later_streamers_see_the_same_events_under_both_paths(done: tuple[Client, str]):
    client, job_id = done
    by_path = [
        get(client, f"/api/{kind}/jobs/{job_id}/events", since_seq="0", limit="200")["events"]
        for kind in ("rl", "learning")
    ]
    assert by_path[0] == by_path[1]
    points = get(client, f"/api/rl/jobs/{job_id}/metrics", after_step="1", limit="200")["points"]
    assert {point["step"] for point in points} == {2}


def test_later_clients_cancel_a_job(backend: RunningApi, task_url: str):
    client = Client(backend.url, task_url=task_url)
    job_id = created(client.send(load("train_rl")[1]))
    headers = {"authorization": "Bearer {key}"}
    answer = client.send(
        {"method": "POST", "path": f"/api/learning/jobs/{job_id}/cancel", "headers": headers}
    )
    assert body_of(answer)["job_id"] == job_id
    assert backend.alice.get_job(job_id)["status"] == "cancelled"


def test_what_later_clients_add_to_a_config_is_taken(backend: RunningApi, task_url: str):
    _, submit, _ = load("train_rl")
    config = submit["body"]["data"]["config"]
    config["training"]["weight_sync"] = {
        "enable": True,
        "mode": "direct",
        "targets": ["policy"],
        "interval": 1,
    }
    config["compute"]["topology"] = {"reference_placement": "none"}
    config["reference"] = {"placement": "none"}
    del config["model"]
    config["policy"] = {
        "model_name": NAME, "trainer_mode": "full", "label": "walk", "max_tokens": 12, "temperature": 0.7,
        "top_p": 0.95, "repetition_penalty": 1.0, "stop_sequences": [],
    }  # fmt: skip
    job_id = created(Client(backend.url, task_url=task_url).send(submit))
    resolved = backend.alice.job_config(job_id)["resolved"]
    assert resolved["policy"]["temperature"] == 0.7
    assert resolved["policy"]["max_tokens"] == 12
