"""The dashboard in headless Chromium: what a visitor sees, live, on a desk and on a phone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait
from tests.fakes.api import FakeApi, serving
from tests.fakes.api_content import RL_JOB, add_step, full_stack, job
from tests.fakes.dashboard import dashboard

from headrace.errors import Unavailable

pytestmark = [pytest.mark.integration, pytest.mark.browser]

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1280,900",
)  # fmt: skip
ROLLOUT = f"{RL_JOB}.train.i31.g0.m3"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    options = Options()
    options.binary_location = "/usr/bin/chromium"
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FakeApi, str]]:
    with serving(full_stack()) as state, dashboard(state.url, tmp_path_factory.mktemp("home")) as base:
        yield state, base


@pytest.fixture
def api(stack: tuple[FakeApi, str]) -> FakeApi:
    return stack[0]


@pytest.fixture
def base(stack: tuple[FakeApi, str], browser: webdriver.Chrome) -> Iterator[str]:
    """The dashboard's address; afterwards nothing was logged, and nothing was asked of another host."""
    browser.get_log("browser")
    browser.get_log("performance")
    yield stack[1]
    assert [entry for entry in browser.get_log("browser") if _is_fault(entry)] == []
    assert hosts_asked(browser) <= {"127.0.0.1"}


def _is_fault(entry: dict[str, Any]) -> bool:
    """A refusal that a test asked for (503) is logged by the browser too; it is no fault of the page."""
    return entry["level"] == "SEVERE" and "503" not in entry["message"]


def hosts_asked(browser: webdriver.Chrome) -> set[str]:
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    return {urlsplit(url).hostname or "" for url in sent if url.startswith(("http", "ws"))}


def until(browser: webdriver.Chrome, script: str, *values: Any) -> Any:
    """The script's value once it is true."""
    return WebDriverWait(browser, 40, poll_frequency=0.1).until(lambda d: d.execute_script(script, *values))


def newest_step(browser: webdriver.Chrome) -> int | None:
    return browser.execute_script("return charts.find((c) => c.spec.key === 'reward').table[0].at(-1)")


def test_a_new_point_and_event_arrive_without_a_reload(browser: webdriver.Chrome, base: str, api: FakeApi):
    browser.get(f"{base}/jobs/{RL_JOB}")
    until(browser, "return document.querySelector('#live-state').dataset.state === 'live'")
    until(browser, "return document.querySelectorAll('.chart:not([hidden]) canvas').length >= 12")
    before = newest_step(browser)
    assert before is not None
    browser.execute_script("window.isSamePage = true")
    add_step(api, RL_JOB, {"reward.mean": 0.9713, "reward.min": 0.5, "reward.max": 1.0})
    api.add_event(RL_JOB, "rl.train.step", "A <b>new</b> iteration")
    api.jobs[RL_JOB]["iteration"] = 32
    until(
        browser,
        "return charts.find((c) => c.spec.key === 'reward').table[0].at(-1) === arguments[0]",
        before + 1,
    )
    until(
        browser,
        "return document.querySelector('[data-tile=\"reward.mean\"] .figure').textContent === '0.9713'",
    )
    until(browser, "return document.querySelector('#events li b').textContent === 'A <b>new</b> iteration'")
    until(
        browser, "return document.querySelector('[data-live=progress_text]').textContent.startsWith('32 of')"
    )
    assert browser.execute_script("return window.isSamePage") is True


def test_the_end_of_a_job_shows_its_model_id_without_a_reload(
    browser: webdriver.Chrome, base: str, api: FakeApi
):
    api.jobs["job_ends"] = job("job_ends", iteration=39, iterations=40)
    browser.get(f"{base}/jobs/job_ends")
    until(browser, "return document.querySelector('#live-state').dataset.state === 'live'")
    assert browser.find_elements(By.CSS_SELECTOR, ".callout") == []
    api.jobs["job_ends"] |= {"status": "succeeded", "model_id": "ft:walk-base:job_ends"}
    until(
        browser,
        "return document.querySelector('.callout.good code')?.textContent === 'ft:walk-base:job_ends'",
    )
    until(browser, "return !document.querySelector('.danger')")


def test_a_rollout_is_opened_and_a_token_shows_the_served_logprob(
    browser: webdriver.Chrome, base: str, api: FakeApi
):
    browser.get(f"{base}/jobs/{RL_JOB}/rollouts")
    browser.find_element(By.CSS_SELECTOR, f'a[href="/rollouts/{ROLLOUT}"]').click()
    until(browser, "return document.querySelectorAll('.tokens .tok').length > 0")
    served = [t for c in api.rollouts[ROLLOUT]["trajectory"]["calls"] for t in c["tokens"]]
    shown = browser.find_elements(By.CSS_SELECTOR, ".tokens .tok")
    assert [float(token.get_attribute("data-logprob") or "nan") for token in shown] == [
        t["logprob"] for t in served
    ]
    assert [int(token.get_attribute("data-token-id") or -1) for token in shown] == [t["id"] for t in served]
    assert {token.get_attribute("data-version") for token in shown} == {"1.30"}
    ActionChains(browser).move_to_element(shown[1]).perform()
    tip = until(
        browser, "const t = document.getElementById('token-tip'); return t.hidden ? null : t.innerText"
    )
    assert f"logprob {served[1]['logprob']}" in tip
    assert "version 1.30" in tip


def test_filters_are_in_the_address_and_lead_to_a_job_with_its_notes(
    browser: webdriver.Chrome, base: str, api: FakeApi
):
    browser.get(f"{base}/jobs?status=running")
    assert len(browser.find_elements(By.CSS_SELECTOR, ".row-link")) == 2
    browser.find_element(By.NAME, "tag").send_keys("recipe:walk\n")
    until(browser, "return location.search.includes('tag=recipe%3Awalk')")
    assert "status=running" in browser.current_url
    (row,) = browser.find_elements(By.CSS_SELECTOR, ".row-link")
    row.click()
    until(browser, "return document.querySelector('.badge')?.textContent === '2 notes on the config'")
    notes = browser.find_elements(By.CSS_SELECTOR, "#notes li")
    assert [note.text.split(" ")[0] for note in notes] == ["Accepted,", "Model"]
    assert "<script>" in notes[1].text


def test_an_event_that_is_new_gets_a_line_of_its_own_without_a_reload(
    browser: webdriver.Chrome, base: str, api: FakeApi
):
    browser.get(f"{base}/jobs/{RL_JOB}")
    labels = "return charts.find((c) => c.spec.key === 'events').lines.map((l) => l.label).join()"
    until(browser, "return document.querySelector('#live-state').dataset.state === 'live'")
    assert browser.execute_script(labels) == "goal,wasted_step"
    add_step(api, RL_JOB, {"events.fresh.frequency": 0.5})
    until(browser, f"return (() => {{ {labels} }})() === 'fresh,goal,wasted_step'")
    add_step(api, RL_JOB, {"events.fresh.frequency": 0.75})
    chart = "charts.find((c) => c.spec.key === 'events')"
    until(browser, f"return {chart}.table[1].at(-1) === 0.75 && {chart}.u !== null")
    assert "75 %" in browser.find_element(By.CSS_SELECTOR, "[data-chart*='\"events\"'] .keys").text


def test_no_page_is_wider_than_a_phone(browser: webdriver.Chrome, base: str):
    size = {"width": 375, "height": 800, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    job_page = f"/jobs/{RL_JOB}"
    paths = [
        "/jobs",
        job_page,
        f"{job_page}/rollouts",
        f"{job_page}/rewards",
        f"/rollouts/{ROLLOUT}",
        "/workers",
    ]
    widths = {}
    for path in paths:
        browser.get(base + path)
        until(browser, "return document.readyState === 'complete'")
        if path == job_page:
            until(browser, "return document.querySelectorAll('.chart:not([hidden]) canvas').length >= 12")
        widths[path] = browser.execute_script("return document.documentElement.scrollWidth")
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert widths == dict.fromkeys(paths, 375)


def test_a_hundred_thousand_points_are_drawn_from_few(browser: webdriver.Chrome, base: str, api: FakeApi):
    api.jobs["job_long"] = job("job_long", "sft", iteration=100_000, iterations=200_000)
    api.points["job_long"] = [
        {"name": "train.loss", "step": step, "value": 1 / step, "phase": None} for step in range(1, 100_001)
    ]
    browser.get(f"{base}/jobs/job_long")
    n_drawn = until(browser, "return charts[0].u && charts[0].table[0].length")
    assert 500 < n_drawn < 1500
    api.points["job_long"].append({"name": "train.loss", "step": 100_001, "value": 0.5, "phase": None})
    until(browser, "return charts[0].table[0].at(-1) === 100001")


def test_a_page_of_an_api_that_is_down_recovers_by_itself(browser: webdriver.Chrome, base: str, api: FakeApi):
    api.broken = Unavailable("the database does not answer")
    browser.get(f"{base}/jobs")
    assert re.search(r"database does not answer", browser.find_element(By.TAG_NAME, "main").text)
    api.broken = None
    until(browser, "return document.querySelectorAll('.row-link').length > 0")


def test_text_from_the_api_never_runs(browser: webdriver.Chrome, base: str):
    browser.get(f"{base}/jobs")
    until(browser, "return document.readyState === 'complete'")
    assert "<script>" in browser.find_element(By.TAG_NAME, "main").text
    assert browser.title == "Jobs · Headrace"
