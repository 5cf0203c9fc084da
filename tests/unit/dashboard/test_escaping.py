"""Traces hold what a model said, and a model may say anything."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from tests.fakes.api_content import HOSTILE, job, rollout_detail

from headrace_dashboard.chart_sections import SECTIONS
from headrace_dashboard.charts import resolved
from headrace_dashboard.render import HERE, environment
from headrace_dashboard.series import Series
from headrace_dashboard.views.job import job_view
from headrace_dashboard.views.job_filters import JobFilters
from headrace_dashboard.views.rewards import PURPOSES, reward_rows
from headrace_dashboard.views.trace import turns


def hostile(value: Any) -> Any:
    """The same shape with every text replaced by markup."""
    if isinstance(value, str):
        return HOSTILE
    if isinstance(value, dict):
        return {key: hostile(item) for key, item in value.items()}
    return [hostile(item) for item in value] if isinstance(value, list) else value


def render(template: str, **values: Any) -> str:
    common = {"path": "/jobs", "flower_url": "", "has_login": False}
    return environment().get_template(template).render(**common, **values)


class Elements(HTMLParser):
    """What a browser would make of a page: its scripts' sources and every element with a handler or an image."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.scripts: list[str | None] = []
        self.dangerous: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "script":
            self.scripts.append(dict(attrs).get("src"))
        if tag == "img" or any(name.startswith("on") or name == "style" for name, _ in attrs):
            self.dangerous.append(tag)


def assert_harmless(html: str) -> None:
    assert "&lt;script&gt;" in html
    found = Elements(html)
    assert found.dangerous == []
    assert all(source and source.startswith("/static/") for source in found.scripts)


def test_a_rollout_full_of_markup_is_shown_and_not_run():
    detail = hostile(rollout_detail("job_1", 3, 0, 0))
    html = render(
        "rollout.html",
        rollout=detail["rollout"],
        trajectory=detail["trajectory"],
        turns=turns(detail["trajectory"], detail["event_rewards"]),
        ops=detail["trajectory"]["ops"],
        attempts=detail["attempts"],
        event_rewards=detail["event_rewards"],
        tools=[HOSTILE],
        versions=[HOSTILE],
    )
    assert_harmless(html)


def test_a_job_full_of_markup_is_shown_and_not_run():
    view = job_view(
        job(
            "job_1", status="failed", error=HOSTILE, model=HOSTILE, model_id=HOSTILE, tags={HOSTILE: HOSTILE},
            notes=[{"type": f"rl.{HOSTILE}", "message": HOSTILE, "keys": [HOSTILE]}],
        )
    )  # fmt: skip
    html = render(
        "job.html",
        job=view,
        tiles=[],
        sections=(),
        names=set(),
        events=[{"seq": 1, "type": HOSTILE, "message": HOSTILE, "level": HOSTILE, "created_at": HOSTILE}],
        engine=None,
        checkpoints=[],
        config={"toml": HOSTILE, "resolved": {"a": HOSTILE}, "submitted": HOSTILE},
        report=None,
        cursor="1:1",
        runs=[
            {"run_number": 1, "status": HOSTILE, "created_at": HOSTILE, "started_at": None, "ended_at": None}
        ],
        clone_key="k",
    )
    assert_harmless(html)


def test_events_named_in_markup_are_shown_and_not_run():
    series = Series()
    series.add([{"name": f"events.{HOSTILE}.frequency", "step": 1, "value": 1.0}])
    sections = resolved(SECTIONS["rl"], series)
    view = job_view(job("job_1"))
    html = render(
        "job.html", job=view, tiles=[], sections=sections, names=set(), events=[], engine=None, checkpoints=[],
        config={"toml": None, "resolved": {}, "submitted": {}}, report=None, cursor="1:1", runs=[], clone_key="k",
    )  # fmt: skip
    assert "script" in html
    found = Elements(html)
    assert (found.dangerous, [source for source in found.scripts if not source]) == ([], [])
    rows = reward_rows(
        [{"iteration": 1, "n": 2, "reward_mean": 0.0, "return_mean": 0.0, "std": 0.0,
          "events": {HOSTILE: {"frequency": 1.0, "mean": 1.0}}}]
    )  # fmt: skip
    assert_harmless(
        render(
            "rewards.html",
            job=view,
            rows=rows,
            purpose="train",
            purposes=PURPOSES,
            is_first=True,
            next_page=None,
        )
    )


def test_filters_and_notes_of_the_list_are_shown_and_not_run():
    view = job_view(job("job_1", notes=[{"type": "x", "message": HOSTILE, "keys": []}]))
    html = render(
        "jobs.html", jobs=[view], sparks={"job_1": None}, metrics={}, summary="", type_names={}, statuses=(),
        filters=JobFilters(pool=HOSTILE, tag=((HOSTILE, HOSTILE),), data=((HOSTILE, HOSTILE),)),
        first_page=JobFilters(model=HOSTILE).link(), next_page=JobFilters(tag=((HOSTILE, HOSTILE),)).link(HOSTILE),
    )  # fmt: skip
    assert_harmless(html)


@pytest.mark.parametrize("path", sorted((HERE / "templates").glob("*.html")), ids=lambda path: path.name)
def test_no_template_marks_text_as_safe_or_needs_inline_code(path: Any):
    text = path.read_text()
    assert not re.search(r"\|\s*safe\b|autoescape false|\sstyle=|\son[a-z]+=", text)
    assert not re.search(r"<script(?![^>]*\ssrc=)|<style", text)
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert "https://" not in text


@pytest.mark.parametrize("path", sorted((HERE / "static").glob("*.js")), ids=lambda path: path.name)
def test_no_script_of_ours_writes_markup(path: Any):
    assert not re.search(
        r"\.innerHTML\s*=|outerHTML|insertAdjacentHTML|document\.write|eval\(", path.read_text()
    )
