from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from tests.integration.running_api import ALICE, CHARLIE, RunningApi, api  # noqa: F401  (a fixture)
from tests.unit.store.test_rewards import events, rollout

from headrace.store import metrics
from headrace.store.tables import Job

pytestmark = pytest.mark.integration


def get(api: RunningApi, path: str, key: str = ALICE, **query: Any) -> httpx.Response:  # noqa: F811
    return httpx.get(f"{api.url}/api{path}", params=query, headers={"Authorization": f"Bearer {key}"})


def job_with_points(api: RunningApi, n_steps: int, **values: float) -> str:  # noqa: F811
    job_id = api.alice.create_rl_job(api.rl_payload())["job_id"]
    with api.store.write() as session:
        for step in range(1, n_steps + 1):
            metrics.write(session, "local", job_id, step, values, "training")
    return job_id


def test_all_metrics_are_exported_as_lines_across_pages(api: RunningApi, monkeypatch) -> None:  # noqa: F811
    monkeypatch.setattr("headrace_api.metrics.routes.EXPORT_PAGE", 5)
    job_id = job_with_points(api, 20, **{"reward.mean": 0.5, "return.mean": 1.5})
    response = get(api, f"/rl/jobs/{job_id}/metrics", format="jsonl", limit=1)
    assert response.headers["content-type"].startswith("application/x-ndjson")
    assert f'filename="{job_id}.metrics.jsonl"' in response.headers["content-disposition"]
    rows = [json.loads(line) for line in response.text.splitlines()]
    assert [(row["step"], row["name"]) for row in rows] == [
        (step, name) for step in range(1, 21) for name in ("return.mean", "reward.mean")
    ]
    later = get(api, f"/jobs/{job_id}/metrics", format="jsonl", after_step=19, name="reward.mean")
    assert [json.loads(line)["step"] for line in later.text.splitlines()] == [20]


def test_a_number_that_json_lacks_is_null_in_both_forms(api: RunningApi) -> None:  # noqa: F811
    job_id = job_with_points(api, 1, **{"train.loss": float("inf")})
    assert json.loads(get(api, f"/jobs/{job_id}/metrics", format="jsonl").text)["value"] is None
    assert api.alice.metrics(job_id)[0]["value"] is None


def test_rewards_come_by_iteration_with_a_cursor_and_by_purpose(api: RunningApi) -> None:  # noqa: F811
    job_id = api.alice.create_rl_job(api.rl_payload())["job_id"]
    rows = [rollout(i, m, float(m), job_id=job_id) for i in (1, 2, 3) for m in (0, 1)]
    held_out = rollout(2, 0, 1.0, job_id=job_id, purpose="eval")
    with api.store.write() as session:
        session.add_all([*rows, held_out, *events(rows[1], ("<b>wood</b>", 0.5))])
    assert [row["iteration"] for row in api.alice.rewards(job_id)] == [1, 2, 3]
    first = get(api, f"/rl/jobs/{job_id}/rewards", limit=2).json()
    assert (first["has_more"], [row["iteration"] for row in first["rewards"]]) == (True, [1, 2])
    assert first["rewards"][0] == {
        "iteration": 1, "purpose": "train", "n": 2, "reward_mean": 0.5, "return_mean": 0.5, "std": 0.5,
        "min": 0.0, "max": 1.0, "events": {"<b>wood</b>": {"frequency": 0.5, "mean": 0.25}},
    }  # fmt: skip
    rest = get(api, f"/jobs/{job_id}/rewards", after_step=2, format="jsonl").text.splitlines()
    assert [json.loads(line)["iteration"] for line in rest] == [3]
    evaluated = get(api, f"/jobs/{job_id}/rewards", purpose="eval").json()
    assert [(row["iteration"], row["n"]) for row in evaluated["rewards"]] == [(2, 1)]


def test_the_return_has_the_event_rewards_where_the_jobs_credit_says_so(api: RunningApi) -> None:  # noqa: F811
    job_id = api.alice.create_rl_job(api.rl_payload())["job_id"]
    with api.store.write() as session:
        job = session.get(Job, job_id)
        assert job is not None
        job.config = job.config | {"training": job.config["training"] | {"credit": "outcome_plus_events"}}
        session.add(rollout(1, 0, 1.0, job_id=job_id, event_reward_sum=0.5))
    [row] = api.alice.rewards(job_id)
    assert (row["reward_mean"], row["return_mean"]) == (1.0, 1.5)


def test_an_evaluation_jobs_rewards_are_those_of_its_episodes(api: RunningApi) -> None:  # noqa: F811
    job_id = "job_eval"
    with api.store.write() as session:
        session.add(
            Job(
                job_id=job_id,
                org_id="local",
                type="eval",
                status="succeeded",
                pool="p",
                model="m",
                body_sha256="",
            )
        )
        session.add(rollout(0, 0, 1.0, job_id=job_id, purpose="eval"))
    page = get(api, f"/jobs/{job_id}/rewards").json()
    assert (page["purpose"], [(row["iteration"], row["n"]) for row in page["rewards"]]) == ("eval", [(0, 1)])


def test_an_outsider_and_an_unknown_value_are_refused(api: RunningApi) -> None:  # noqa: F811
    job_id = job_with_points(api, 1, a=1.0)
    for path in (f"/jobs/{job_id}/rewards", f"/jobs/{job_id}/metrics"):
        assert get(api, path, key=CHARLIE).status_code == 404
        assert get(api, path, key=CHARLIE, format="jsonl").status_code == 404
        refused = get(api, path, format="csv")
        assert refused.status_code == 422
        assert "'json' or 'jsonl'" in refused.json()["detail"]
    refused = get(api, f"/jobs/{job_id}/rewards", purpose="test")
    assert "'train' or 'eval'" in refused.json()["detail"]
