"""The real dashboard over the real API: what one serves is what the other reads."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.fakes.dashboard import HTML, dashboard
from tests.integration.running_api import ALICE, RunningApi, api  # noqa: F401  (a fixture)
from tests.unit.store.test_rewards import events, rollout

from headrace.store import metrics

pytestmark = pytest.mark.integration


@pytest.fixture
def site(api: RunningApi, tmp_path: Path) -> Iterator[httpx.Client]:  # noqa: F811
    with (
        dashboard(api.url, tmp_path, key=ALICE) as base,
        httpx.Client(base_url=base, headers=HTML, timeout=30) as client,
    ):
        yield client


def test_a_job_is_found_read_cancelled_resumed_and_cloned(api: RunningApi, site: httpx.Client):  # noqa: F811
    payload = api.rl_payload()
    payload["strict"] = False
    payload["data"]["config"] |= {"tags": {"team": "a"}, "no_such_section": {"x": 1}}
    job_id = api.alice.create_rl_job(payload)["job_id"]
    other = api.alice.create_rl_job(api.rl_payload())["job_id"]
    row = rollout(1, 0, 1.0, job_id=job_id)
    with api.store.write() as session:
        session.add_all([row, *events(row, ("wood", 0.5))])
        metrics.write(
            session, "local", job_id, 1, {"reward.mean": 1.0, "events.wood.frequency": 1.0}, "training"
        )
    listed = site.get("/jobs?type=rl&status=queued&tag=team:a")
    assert (listed.status_code, job_id in listed.text, other in listed.text) == (200, True, False)
    shown = site.get(f"/jobs/{job_id}")
    assert shown.status_code == 200
    assert "on the config" in shown.text
    assert "no_such_section" in shown.text
    charts = site.get(f"/jobs/{job_id}/series").json()["charts"]
    assert charts["events"]["table"] == [[1], [1.0]]
    assert "wood" in site.get(f"/jobs/{job_id}/rewards").text
    for what, key in (
        ("metrics", "name"),
        ("rewards", "events"),
        ("events", "seq"),
        ("rollouts", "rollout_id"),
    ):
        rows = [json.loads(line) for line in site.get(f"/jobs/{job_id}/{what}.jsonl").text.splitlines()]
        assert rows, what
        assert all(key in row for row in rows), what
    for action, status in (("cancel", "cancelled"), ("resume", "queued")):
        assert site.post(f"/jobs/{job_id}/{action}").status_code == 303
        assert api.alice.get_job(job_id)["status"] == status
    key = re.findall(r'name="key" value="(\w+)"', site.get(f"/jobs/{job_id}").text)[0]
    places = {site.post(f"/jobs/{job_id}/clone", data={"key": key}).headers.get("location") for _ in range(2)}
    assert len(places) == 1
    assert places != {f"/jobs/{job_id}"}
    assert site.get(places.pop() or "").status_code == 200


def test_every_job_is_on_one_page_of_the_list(api: RunningApi, site: httpx.Client):  # noqa: F811
    ids = [api.alice.create_rl_job(api.rl_payload())["job_id"] for _ in range(55)]
    first = site.get("/jobs?type=rl").text
    (older,) = re.findall(r'rel="next" href="([^"]+)"', first)
    second = site.get(older.replace("&amp;", "&")).text
    assert "type=rl" in older
    assert 'rel="next"' not in second
    seen = re.findall(r'class="row-link" href="/jobs/(job_\w+)"', first + second)
    assert seen == ids[::-1]
