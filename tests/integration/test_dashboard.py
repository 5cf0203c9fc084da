"""The real dashboard process against a fake API over real HTTP."""

from __future__ import annotations

import html
import json
import re
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from tests.fakes.api import KEY, FakeApi, serving
from tests.fakes.api_content import HOSTILE, RL_JOB, add_step, ago, full_stack, job
from tests.fakes.dashboard import HTML, dashboard

from headrace.errors import HeadraceError, Unavailable

pytestmark = pytest.mark.integration

EVENTS = {"Accept": "text/event-stream"}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FakeApi, str, Path]]:
    """One API and one dashboard for all tests; `site` gives each test a state and a key of its own."""
    home = tmp_path_factory.mktemp("home")
    with serving(full_stack()) as state, dashboard(state.url, home, key="") as base:
        yield state, base, home


@pytest.fixture
def api(stack: tuple[FakeApi, str, Path]) -> FakeApi:
    state = stack[0]
    vars(state).update(vars(full_stack()) | {"url": state.url})
    return state


@pytest.fixture
def site(api: FakeApi, stack: tuple[FakeApi, str, Path]) -> Iterator[httpx.Client]:
    _, base, home = stack
    key = f"hr_{secrets.token_hex(8)}"
    api.keys.add(key)
    (home / "api_key").write_text(key)
    with httpx.Client(base_url=base, headers=HTML, timeout=30) as client:
        yield client


def updates(response: httpx.Response) -> Iterator[tuple[str, str, dict]]:
    """(id, kind, body) of the server-sent events as they come."""
    message: dict[str, str] = {}
    for line in response.iter_lines():
        if line:
            name, _, value = line.partition(": ")
            message[name] = value
        elif "data" in message:
            yield message["id"], message["event"], json.loads(message["data"])
            message = {}


def eventually(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not check():
        assert time.monotonic() < deadline, "it did not come true within 30 s"
        time.sleep(0.05)


def test_every_page_shows_what_the_api_holds_under_a_strict_policy(site: httpx.Client, api: FakeApi):
    rollout = f"{RL_JOB}.train.i31.g0.m3"
    expected = {
        "/jobs": [RL_JOB, "31 of 40 iterations", "answered 503 three times", "2 running, 1 queued"],
        f"/jobs/{RL_JOB}": ["Checkpoint 1.30 saved", "learning_rate = 2e-3", "Cancel", "0.9035"],
        "/jobs/job_02bb7c5d9e6f4a13": ["Why it failed", "answered 401"],
        "/jobs/job_83c1d6f02b7749aa": ["ft:walk-base:job_83c1d6", "Validation loss"],
        "/jobs/job_9d44e07a113c5f80": ["Difference".lower(), "0.5595"],
        f"/jobs/{RL_JOB}/rollouts": ["1–50 of 64", rollout, "closed the connection"],
        f"/jobs/{RL_JOB}/rewards": ["0.9035", "goal", "1.25", "25 %"],
        f"/rollouts/{rollout}": ["You are at 2. The goal is 6.", "walk", "41000", "wasted step"],
        "/workers": ["gpu-1", "local-cpu"],
    }
    for path, texts in expected.items():
        response = site.get(path)
        assert response.status_code == 200, path
        assert "script-src 'self'" in response.headers["content-security-policy"]
        assert "unsafe" not in response.headers["content-security-policy"]
        assert [text for text in texts if text not in response.text] == [], path


def test_markup_in_a_tag_arrives_as_text(site: httpx.Client):
    assert HOSTILE not in site.get("/jobs").text
    assert "&lt;script&gt;" in site.get("/jobs").text


def test_jobs_are_filtered_by_type_status_pool_model_and_tag(site: httpx.Client):
    def shown(**query: str) -> int:
        return site.get("/jobs", params=query).text.count('class="row-link"')

    assert shown() == 7
    assert shown(type="eval") == 2
    assert shown(status="running") == 2
    assert shown(pool="gpu-1") == 1
    assert shown(model="walk-base", type="sft") == 1
    assert shown(tag="team:agents") == 1
    assert "No job matches" in site.get("/jobs", params={"pool": "nowhere"}).text


def test_jobs_are_filtered_by_data_and_by_several_tags_at_once(site: httpx.Client, api: FakeApi):
    api.jobs[RL_JOB]["data"] = {"level": 3}
    assert site.get("/jobs", params={"data": "level:3"}).text.count('class="row-link"') == 1
    both = site.get("/jobs?tag=recipe:walk&tag=seed:7").text
    assert (both.count('class="row-link"'), 'value="seed:7"' in both) == (1, True)
    assert "No job matches" in site.get("/jobs?tag=recipe:walk&tag=seed:8").text


def test_a_filter_that_cannot_be_is_a_sentence_with_what_can(site: httpx.Client):
    for query, sentence in {
        "status=paused": "Status = &#39;paused&#39; is none of queued, running, succeeded, failed, cancelled.",
        "type=<b>": "Type = &#39;&lt;b&gt;&#39; is none of rl, sft, eval.",
        "tag=team": "Tag = &#39;team&#39; must be written as name:value.",
        "data=a:1&data=a:2": "Data &#39;a&#39; is given twice",
    }.items():
        response = site.get(f"/jobs?{query}")
        assert (response.status_code, sentence in response.text) == (400, True), response.text


def test_paging_keeps_the_filters_and_reaches_every_job_once(site: httpx.Client, api: FakeApi):
    for n in range(120):
        api.jobs[f"job_p{n:03}"] = job(
            f"job_p{n:03}", "sft", "failed", tags={"team": "a&b"}, created_at=ago(days=n)
        )
    seen, path = [], "/jobs?status=failed&tag=team%3Aa%26b&pool=local-cpu"
    while path:
        text = site.get(path).text
        seen += re.findall(r'class="row-link" href="/jobs/(job_p\d+)"', text)
        links = re.findall(r'rel="next" href="([^"]+)"', text)
        path = html.unescape(links[0]) if links else ""
        assert not path or "status=failed" in path
    assert seen == [f"job_p{n:03}" for n in range(120)]


def test_notes_on_the_config_are_a_badge_and_a_list_of_text(site: httpx.Client):
    text = site.get(f"/jobs/{RL_JOB}").text
    assert "2 notes on the config" in text
    assert "Accepted, not used" in text
    assert "accepted without effect: lora.r" in text
    assert "walk-base stands for /models/&lt;script&gt;" in text
    assert "Model mapped" in text
    assert "notes on the config" not in site.get("/jobs/job_02bb7c5d9e6f4a13").text


def test_a_page_of_an_older_api_without_notes_still_shows(site: httpx.Client, api: FakeApi):
    del api.jobs[RL_JOB]["notes"]
    assert site.get(f"/jobs/{RL_JOB}").status_code == 200


def test_charts_have_a_line_per_event_that_the_job_reports(site: httpx.Client, api: FakeApi):
    found = site.get(f"/jobs/{RL_JOB}/series").json()["charts"]["events"]
    assert [line["label"] for line in found["lines"]] == ["goal", "wasted_step"]
    assert len(found["table"]) == 3
    add_step(api, RL_JOB, {f"events.e{n}.frequency": n / 10 for n in range(9)})
    found = site.get(f"/jobs/{RL_JOB}/series").json()["charts"]["events"]
    assert [line["label"] for line in found["lines"]] == ["e4", "e5", "e6", "e7", "e8", "goal"]


def test_everything_is_downloaded_as_lines(site: httpx.Client, api: FakeApi):
    for what, n_rows in (("metrics", len(api.points[RL_JOB])), ("rewards", 31), ("events", len(api.events[RL_JOB])),
                         ("rollouts", 64)):  # fmt: skip
        response = site.get(f"/jobs/{RL_JOB}/{what}.jsonl")
        assert f'filename="{RL_JOB}.{what}.jsonl"' in response.headers["content-disposition"]
        assert len([json.loads(line) for line in response.text.splitlines()]) == n_rows, what
        assert f'href="/jobs/{RL_JOB}/{what}.jsonl"' in site.get(f"/jobs/{RL_JOB}").text
    assert site.get("/jobs/job_none/metrics.jsonl").status_code == 404
    assert site.get(f"/jobs/{RL_JOB}/secrets.jsonl").status_code == 404


def test_rewards_are_paged_by_iteration(site: httpx.Client, api: FakeApi):
    api.rewards[RL_JOB] = [{**api.rewards[RL_JOB][0], "iteration": n} for n in range(1, 251)]
    path, seen, text = f"/jobs/{RL_JOB}/rewards", [], ""
    while path:
        text = site.get(path).text
        seen += re.findall(r"purpose=train&amp;iteration=(\d+)", text)
        links = re.findall(r'rel="next" href="([^"]+)"', text)
        path = html.unescape(links[0]) if links else ""
    assert seen == [str(n) for n in range(1, 251)]
    assert HOSTILE not in text
    assert site.get(f"/jobs/{RL_JOB}/rewards?purpose=all").status_code == 400


def test_a_failed_job_is_resumed_and_shows_its_runs(site: httpx.Client, api: FakeApi):
    failed = "job_02bb7c5d9e6f4a13"
    api.runs[failed] = [
        {"run_number": n, "status": "failed", "created_at": ago(days=n), "started_at": None, "ended_at": None}
        for n in (1, 2)
    ]
    text = site.get(f"/jobs/{failed}").text
    assert re.findall(r'<tr><td class="num">(\d)</td>', text) == ["2", "1"]
    assert f'action="/jobs/{failed}/resume"' in text
    response = site.post(f"/jobs/{failed}/resume")
    assert (response.status_code, response.headers["location"]) == (303, f"/jobs/{failed}")
    assert api.jobs[failed]["status"] == "queued"
    refused = site.post(f"/jobs/{failed}/resume")
    assert (refused.status_code, "only an ended job is resumed" in refused.text) == (409, True)


def test_a_second_click_on_clone_gives_the_same_job(site: httpx.Client, api: FakeApi):
    key = re.findall(r'name="key" value="(\w+)"', site.get(f"/jobs/{RL_JOB}").text)[0]
    first, second = (site.post(f"/jobs/{RL_JOB}/clone", data={"key": key}) for _ in range(2))
    assert (first.status_code, first.headers["location"]) == (303, "/jobs/job_clone0")
    assert second.headers["location"] == first.headers["location"]
    assert list(api.clones) == [key]


def test_rollouts_are_paged_and_filtered(site: httpx.Client):
    second = site.get(f"/jobs/{RL_JOB}/rollouts", params={"offset": 50}).text
    assert "51–64 of 64" in second
    assert 'rel="prev"' in second
    assert 'rel="next"' not in second
    failed = site.get(f"/jobs/{RL_JOB}/rollouts", params={"status": "infra_failed"}).text
    assert "1–1 of 1" in failed


def test_a_new_point_an_event_and_a_status_come_over_the_stream(site: httpx.Client, api: FakeApi):
    with site.stream("GET", f"/jobs/{RL_JOB}/live", params={"cursor": "31:40"}, headers=EVENTS) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        stream = updates(response)
        next(stream)
        add_step(api, RL_JOB, {"reward.mean": 0.971})
        api.add_event(RL_JOB, "rl.train.step", "Iteration 32 of 40")
        points, events = [], []
        while not (["reward.mean", 32, 0.971] in points and "Iteration 32 of 40" in events):
            _, _, body = next(stream)
            points += body["points"]
            events += [event["message"] for event in body["events"]]
        api.jobs[RL_JOB]["status"] = "succeeded"
        while next(stream)[2]["job"]["status"] != "succeeded":
            continue


def test_a_reconnecting_browser_gets_only_what_it_missed(site: httpx.Client, api: FakeApi):
    seq = len(api.events[RL_JOB])
    headers = EVENTS | {"Last-Event-ID": f"31:{seq - 1}"}
    with site.stream("GET", f"/jobs/{RL_JOB}/live", headers=headers) as response:
        cursor, kind, body = next(updates(response))
    assert (cursor, kind) == (f"31:{seq}", "update")
    assert {step for _, step, _ in body["points"]} == {31}
    assert [event["seq"] for event in body["events"]] == [seq]


def test_many_viewers_of_a_job_share_one_poller(site: httpx.Client, api: FakeApi):
    path = f"/jobs/{RL_JOB}"
    streams = [site.stream("GET", f"{path}/live", headers=EVENTS) for _ in range(8)]
    responses = [stream.__enter__() for stream in streams]
    readers = [updates(response) for response in responses]
    for reader in readers:
        next(reader)
    before = api.n_requests[path]
    add_step(api, RL_JOB, {"reward.mean": 0.5})
    for reader in readers:
        next(reader)
    assert api.n_requests[path] - before <= 3
    for stream in streams:
        stream.__exit__(None, None, None)


def test_a_hundred_thousand_points_are_thinned_for_the_page_and_whole_in_a_zoom(
    site: httpx.Client, api: FakeApi
):
    api.jobs["job_long"] = job("job_long", "sft", iteration=100_000, iterations=100_000)
    api.points["job_long"] = [
        {"name": "train.loss", "step": step, "value": 9.0 if step == 61_237 else 1 / step, "phase": None}
        for step in range(1, 100_001)
    ]
    steps, losses, _ = site.get("/jobs/job_long/series").json()["charts"]["loss"]["table"]
    assert len(steps) < 1500
    assert (steps[0], steps[-1], max(losses)) == (1, 100_000, 9.0)
    query = {"chart": "loss", "first": 61_200, "last": 61_300}
    zoomed = site.get("/jobs/job_long/series", params=query).json()["charts"]["loss"]
    assert len(zoomed["table"][0]) == 101


def test_a_missing_job_rollout_or_page_is_a_sentence_with_404(site: httpx.Client):
    for path, sentence in {
        "/jobs/job_none": "There is no job job_none.",
        "/jobs/job_none/rollouts": "There is no job job_none.",
        "/rollouts/none": "There is no rollout none.",
        "/nothing": "There is no page /nothing.",
    }.items():
        response = site.get(path)
        assert (response.status_code, sentence in response.text) == (404, True), path


def test_an_api_that_refuses_or_breaks_is_a_sentence(site: httpx.Client, api: FakeApi):
    api.broken = HeadraceError("the disk is full")
    response = site.get("/jobs")
    assert (response.status_code, "The disk is full." in response.text) == (500, True)
    api.broken = None
    api.keys.clear()
    response = site.get("/jobs")
    assert (response.status_code, "The API key is not known." in response.text) == (401, True)


def test_a_page_that_cannot_be_made_is_a_page_too_and_as_strict(site: httpx.Client, api: FakeApi):
    api.rollouts["odd"] = {"rollout": {}}
    response = site.get("/rollouts/odd")
    assert response.status_code == 500
    assert "The dashboard could not make this page; its log says why." in response.text
    assert "<main" in response.text
    assert "script-src 'self'" in response.headers["content-security-policy"]


def test_while_the_api_is_down_pages_say_so_and_come_back(site: httpx.Client, api: FakeApi):
    api.broken = Unavailable("the database does not answer")
    response = site.get(f"/jobs/{RL_JOB}")
    assert response.status_code == 503
    assert "The database does not answer." in response.text
    assert "data-recover" in response.text
    assert site.get("/ready").status_code == 503
    assert site.get("/health").status_code == 200
    api.broken = None
    assert site.get("/ready").status_code == 200
    assert site.get(f"/jobs/{RL_JOB}").status_code == 200


def test_a_stream_tells_of_an_api_that_goes_away_and_returns(site: httpx.Client, api: FakeApi):
    with site.stream("GET", f"/jobs/{RL_JOB}/live", headers=EVENTS) as response:
        stream = updates(response)
        next(stream)
        api.broken = Unavailable("the database does not answer")
        kinds = [next(stream)[1]]
        api.broken = None
        while kinds[-1] != "update":
            kinds.append(next(stream)[1])
    assert kinds[0] == "trouble"


def test_an_address_where_nothing_listens_is_named(tmp_path: Path):
    with dashboard("http://127.0.0.1:9", tmp_path) as base:
        response = httpx.get(f"{base}/jobs", headers=HTML)
    assert response.status_code == 503
    assert "http://127.0.0.1:9 does not answer" in response.text


def test_the_cancel_button_asks_the_api(site: httpx.Client, api: FakeApi):
    response = site.post(f"/jobs/{RL_JOB}/cancel")
    assert (response.status_code, response.headers["location"]) == (303, f"/jobs/{RL_JOB}")
    assert api.jobs[RL_JOB]["cancel_requested"] is True
    eventually(lambda: "cancelling" in site.get(f"/jobs/{RL_JOB}").text)


def test_another_site_can_neither_act_nor_read_through_the_browser(site: httpx.Client, api: FakeApi):
    foreign = [{"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "null"},
               {"Sec-Fetch-Site": "same-site"}]  # fmt: skip
    before = json.dumps(api.jobs)
    for headers in foreign:
        for job_id, action in ((RL_JOB, "cancel"), (RL_JOB, "clone"), ("job_02bb7c5d9e6f4a13", "resume")):
            assert site.post(f"/jobs/{job_id}/{action}", headers=headers).status_code == 403
    assert json.dumps(api.jobs) == before
    for action in ("cancel", "clone", "resume"):
        assert site.get(f"/jobs/{RL_JOB}/{action}").status_code == 405
    assert site.get("/jobs", headers={"Host": "rebound.example"}).status_code == 403


def test_without_any_key_the_page_says_how_to_get_one(api: FakeApi, tmp_path: Path):
    with dashboard(api.url, tmp_path, key="") as base:
        response = httpx.get(f"{base}/jobs", headers=HTML)
        assert (response.status_code, "HEADRACE_API_KEY" in response.text) == (401, True)
        (tmp_path / "api_key").write_text(KEY + "\n")
        assert httpx.get(f"{base}/jobs", headers=HTML).status_code == 200


def test_bound_to_a_network_each_visitor_logs_in_with_a_key_of_their_own(api: FakeApi, tmp_path: Path):
    with dashboard(api.url, tmp_path, host="0.0.0.0") as base, httpx.Client(base_url=base) as visitor:
        response = visitor.get("/jobs", headers=HTML)
        assert (response.status_code, response.headers["location"]) == (303, "/login?to=/jobs")
        shared = visitor.get("/jobs?status=failed", headers=HTML)
        assert shared.headers["location"] == "/login?to=/jobs%3Fstatus%3Dfailed"
        assert visitor.get(f"/jobs/{RL_JOB}/live").status_code == 401
        wrong = visitor.post("/login", data={"key": "hr_wrong", "to": "/jobs"})
        assert (wrong.status_code, "does not know this key" in wrong.text) == (401, True)
        right = visitor.post("/login", data={"key": KEY, "to": "//evil.example"})
        assert (right.status_code, right.headers["location"]) == (303, "/")
        assert "httponly" in right.headers["set-cookie"].lower()
        assert "samesite=strict" in right.headers["set-cookie"].lower()
        assert visitor.get("/jobs", headers=HTML).status_code == 200
        visitor.post("/logout")
        assert visitor.get("/jobs", headers=HTML).status_code == 303
