"""Each wrong submission is one clear sentence with a proper status, and leaves nothing half-made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.conftest import free_port
from tests.integration.running_api import ALICE, RunningApi, api  # noqa: F401  (a fixture)

from headrace.client import ApiClient
from headrace.errors import ConfigError, Conflict, DataError, HeadraceError, NotFound, Unavailable

pytestmark = pytest.mark.integration

GOOD_LINE = b'{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n'


def refusal(kind: type[HeadraceError], call: Any, *args: Any) -> str:
    with pytest.raises(kind) as error:
        call(*args)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"training": {"lerning_rate": 1e-4}},
            "unknown key [training] lerning_rate: did you mean `learning_rate`?",
        ),
        ({"services": None}, "[services]"),
        ({"model": {}}, "[model] needs exactly one of `base` and `source`"),
        ({"training": {"learning_rate": -1}}, "[training] learning_rate = -1"),
        ({"training": {"learning_rate": "fast"}}, "[training] learning_rate = 'fast'"),
        ({"backend": {"compute_pool": "moon"}}, "pools: local-cpu"),
        ({"backend": {"topology_id": "ring"}}, "topologies of this pool: one"),
        ({"model": {"base": "no/such-model"}}, "model 'no/such-model' does not exist: looked for"),
        ({"training": {"batch_size": 128, "group_size": 1024}}, "128 x 1024 = 131072"),
        ({"training": {"rollouts": {"deadline_s": 1e6}}}, "deadline_s = 1e+06 is above the 3600 s"),
        ({"training": {"rollouts": {"failure_reward": float("inf")}}}, "failure_reward"),
    ],
)
def test_a_wrong_config_is_named_and_makes_no_job(
    api: RunningApi,  # noqa: F811
    changes: dict[str, Any],
    sentence: str,
) -> None:
    payload = api.rl_payload()
    payload["data"]["config"] |= changes
    if changes == {"services": None}:
        del payload["data"]["config"]["services"]
        sentence = "missing key services"
    if "inf" in str(changes):
        payload["data"]["config"]["training"]["rollouts"]["failure_reward"] = "inf"
    assert sentence in refusal(ConfigError, api.alice.create_rl_job, payload)
    assert api.alice.list_jobs() == []


def test_every_problem_of_a_config_is_listed(api: RunningApi) -> None:  # noqa: F811
    payload = api.rl_payload()
    payload["data"]["config"] |= {"traning": {}, "training": {"group_size": 1}}
    with pytest.raises(ConfigError) as error:
        api.alice.create_rl_job(payload)
    problems = error.value.details["problems"]
    assert isinstance(problems, list)
    assert len(problems) == 2
    assert "did you mean `training`?" in problems[0]


def test_a_lenient_submission_says_what_it_ignored(api: RunningApi) -> None:  # noqa: F811
    payload: dict[str, Any] = api.rl_payload() | {"strict": False}
    payload["data"]["config"] |= {"no_such_section": {}, "smoke": {}, "judge": {"type": "x"}}
    job_id = api.alice.create_rl_job(payload)["job_id"]
    told = {event["type"]: event["data"] for event in api.alice.events(job_id)}
    assert told["rl.config.ignored"] == {"keys": ["no_such_section"]}
    unused = told["rl.config.not_used"]
    assert unused["keys"] == ["[judge] type", "smoke"]
    assert set(unused["why"]) == set(unused["keys"]), "each with its reason"


def test_bodies_that_are_no_objects_are_one_sentence(api: RunningApi) -> None:  # noqa: F811
    headers = {"Authorization": f"Bearer {ALICE}", "Content-Type": "application/json"}
    for body, sentence in ((b"{", "the body is not valid JSON"), (b"[]", "the body"), (b"", "the body")):
        answer = httpx.post(f"{api.url}/api/rl/jobs", content=body, headers=headers)
        assert answer.status_code == 422
        assert sentence in answer.json()["detail"]
        assert answer.json()["error"]["message"] == answer.json()["detail"]
    for path in ("/api/jobs?limit=0", "/api/jobs?tag=x", "/api/jobs?created_after=soon"):
        answer = httpx.get(api.url + path, headers=headers)
        assert answer.status_code in (400, 422), path
        assert path.split("?")[1].split("=")[0] in answer.json()["detail"]
    assert httpx.get(f"{api.url}/nothing", headers=headers).json()["error"]["code"] == "not_found"
    assert httpx.put(f"{api.url}/jobs", headers=headers).json()["error"]["code"] == "method_not_allowed"


def test_what_no_reader_could_keep_is_refused_before_it_is_stored(api: RunningApi) -> None:  # noqa: F811
    headers = {"Authorization": f"Bearer {ALICE}", "Content-Type": "application/json"}
    nested = "{" + '"a": {' * 300 + "}" * 301
    for value, sentence in (
        ("NaN", "NaN or Infinity"),
        ("-Infinity", "NaN or Infinity"),
        (r'"\ud800"', "surrogate"),
        (r'"a\u0000b"', "NUL"),
        (nested, "nests deeper than"),
    ):
        payload: dict[str, Any] = api.rl_payload() | {"strict": False}
        payload["data"]["config"]["judge"] = {"x": "VALUE"}
        body = json.dumps(payload).replace('"VALUE"', value)
        answer = httpx.post(f"{api.url}/api/rl/jobs", content=body.encode(), headers=headers)
        assert answer.status_code == 422, value
        assert sentence in answer.json()["detail"]
        assert api.alice.list_jobs() == []
    kept: dict[str, Any] = api.rl_payload() | {"strict": False}
    kept["data"]["config"]["judge"] = {"x": "a backslash: \\u0000"}
    assert api.alice.create_rl_job(kept)["status"] == "queued"


def test_one_idempotency_key_does_not_serve_two_kinds_of_job(api: RunningApi) -> None:  # noqa: F811
    body = api.rl_payload()
    api.alice.create_rl_job(body, "key")
    assert "'key'" in refusal(Conflict, api.alice.create_eval_job, body, "key")


def test_what_is_seldom_meant_is_said(api: RunningApi) -> None:  # noqa: F811
    payload = api.rl_payload()
    payload["data"]["config"] |= {
        "policy": {"temperature": 0.3},
        "training": {"rollouts": {"seeds": {"count": 3}}},
        "evaluation": {"every_n_iters": 1, "seeds": [2, 3]},
    }
    job_id = api.alice.create_rl_job(payload)["job_id"]
    told = {event["type"]: event for event in api.alice.events(job_id)}
    assert told["rl.config.low_temperature"]["level"] == "warning"
    assert told["rl.config.seeds_overlap"]["data"] == {"seeds": [2]}


def test_a_greedy_training_temperature_of_another_client_becomes_neutral(api: RunningApi) -> None:  # noqa: F811
    payload: dict[str, Any] = api.rl_payload() | {"strict": False}
    payload["data"]["config"]["rollout"] = {"policy_config": {"temperature": 0, "top_p": 0.9}}
    job_id = api.alice.create_rl_job(payload)["job_id"]
    told = {event["type"]: event["data"] for event in api.alice.events(job_id)}
    replaced = told["rl.config.replaced"]
    assert replaced["keys"] == ["[rollout.policy_config] temperature"]
    assert (replaced["value"], replaced["used"]) == (0, None)
    assert "greedy" in replaced["why"]
    policy = api.alice.job_config(job_id)["resolved"]["rollout"]["policy_config"]
    assert "temperature" not in policy, "what is left out is not handed to the agent either"


def test_an_idempotency_key_of_a_refused_submission_can_be_used_again(api: RunningApi) -> None:  # noqa: F811
    wrong = api.rl_payload()
    wrong["data"]["config"]["foo"] = 1
    refusal(ConfigError, api.alice.create_rl_job, wrong, "key")
    assert api.alice.create_rl_job(api.rl_payload(), "key")["status"] == "queued"


def test_a_bad_line_of_a_dataset_is_named_and_nothing_is_kept(api: RunningApi, tmp_path: Path) -> None:  # noqa: F811
    path = tmp_path / "bad.jsonl"
    path.write_bytes(GOOD_LINE * 2 + b'{"messages": [{"role": "robot"}]}\n')
    sentence = refusal(DataError, api.alice.upload_file, path)
    assert sentence.startswith("bad.jsonl, line 3: messages[0] has the role 'robot'")
    path.write_bytes(GOOD_LINE.replace(b'"b"', rb'"\ud800"'))
    assert "line 1: holds half of a surrogate pair" in refusal(DataError, api.alice.upload_file, path)
    path.write_bytes(b"\n")
    assert "holds no conversation" in refusal(DataError, api.alice.upload_file, path)
    assert "purpose" in refusal(DataError, api.alice.upload_file, path, "dancing")
    assert api.alice.list_files() == []
    assert list((api.settings.artifacts).rglob("*.jsonl")) == []


def test_a_dataset_that_does_not_exist_is_named(api: RunningApi, tmp_path: Path) -> None:  # noqa: F811
    path = tmp_path / "good.jsonl"
    path.write_bytes(GOOD_LINE)
    mine = api.alice.upload_file(path)["id"]
    payload: dict[str, Any] = {"model": api.model, "config": {"job": {"model": api.model}}, "strict": True}
    assert "training_file_id" in refusal(ConfigError, api.alice.create_sft_job, payload)
    for files in ({"training_file_id": "file_x"}, {"training_file_id": mine, "validation_file_id": "file_x"}):
        assert "'file_x' does not exist" in refusal(ConfigError, api.alice.create_sft_job, payload | files)
    foreign = payload | {"training_file_id": mine}
    assert "does not exist" in refusal(ConfigError, api.charlie.create_sft_job, foreign)
    assert api.alice.list_jobs() == []


def test_what_does_not_exist_is_a_404_with_its_name(api: RunningApi) -> None:  # noqa: F811
    for call, name in (
        (api.alice.get_job, "job_x"), (api.alice.rollout, "job_x.train.i0.g0.m0"), (api.alice.get_file, "file_x"),
        (api.alice.delete_file, "file_x"), (api.alice.revoke_key, "key_x"), (api.alice.cancel_job, "job_x"),
    ):  # fmt: skip
        assert name in refusal(NotFound, call, name)


def test_a_file_that_a_waiting_job_reads_is_not_deleted(api: RunningApi, tmp_path: Path) -> None:  # noqa: F811
    path = tmp_path / "good.jsonl"
    path.write_bytes(GOOD_LINE)
    file_id = api.alice.upload_file(path)["id"]
    payload = {"model": api.model, "training_file_id": file_id, "hyperparameters": {"n_epochs": 3}}
    job = api.alice.create_sft_job(payload)
    assert job["iterations"] == 3
    assert job["job_id"] in refusal(Conflict, api.alice.delete_file, file_id)
    api.alice.cancel_job(job["job_id"])
    assert api.alice.delete_file(file_id)["deleted"]


def test_an_api_that_does_not_answer_is_named(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with ApiClient(url, "hr_x", timeout_s=2) as client:
        assert url in refusal(Unavailable, client.health)


def test_jobs_are_accepted_while_redis_is_down(api: RunningApi) -> None:  # noqa: F811
    from tests.integration.running_api import serving

    settings = api.settings.model_copy(update={"redis_url": f"redis://127.0.0.1:{free_port()}/0"})
    with serving(settings) as url, ApiClient(url, ALICE) as client:
        assert "Redis" in refusal(Unavailable, client.ready)
        job_id = client.create_rl_job(api.rl_payload())["job_id"]
        assert client.cancel_job(job_id)["status"] == "cancelled"
