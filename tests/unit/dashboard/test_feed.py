from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import pytest
from tests.fakes.api_content import job

from headrace.client import ApiClient
from headrace.errors import Unavailable
from headrace_dashboard import feed as feed_module
from headrace_dashboard.feed import Feed
from headrace_dashboard.live import Cursor, Watch, stream

Json = dict[str, Any]


class Pages:
    """The four reads that a feed makes, over lists."""

    def __init__(self) -> None:
        self.job: Json = job("job_1")
        self.points: list[Json] = []
        self.rows: list[Json] = []

    def get_job(self, job_id: str) -> Json:
        return dict(self.job)

    def events(self, job_id: str, since_seq: int, limit: int) -> list[Json]:
        return [row for row in self.rows if row["seq"] > since_seq][:limit]

    def metrics(self, job_id: str, after_step: int, limit: int) -> list[Json]:
        """Like the API's: a page ends between two steps."""
        found = sorted((p for p in self.points if p["step"] > after_step), key=lambda p: p["step"])
        page = found[:limit]
        return page if len(page) == len(found) else [p for p in page if p["step"] < page[-1]["step"]]


@pytest.fixture
def pages() -> Pages:
    return Pages()


@pytest.fixture
def feed(pages: Pages) -> Feed:
    return Feed(cast(ApiClient, pages), "job_1")


def values(step: int, **named: float) -> list[Json]:
    return [{"name": name, "step": step, "value": value} for name, value in named.items()]


def read(message: str) -> tuple[str, Json]:
    lines = dict(line.split(": ", 1) for line in message.strip().splitlines())
    return lines["id"], json.loads(lines["data"])


def test_pages_are_read_until_nothing_more_comes(pages: Pages, feed: Feed, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(feed_module, "METRICS_PAGE", 9)
    pages.points = [p for step in range(1, 41) for p in values(step, a=1.0, b=2.0)]
    n_polls = 0
    while not feed.is_complete:
        feed.poll()
        n_polls += 1
    assert n_polls < 40
    assert len(feed.series.since(-1)) == 80


def test_a_name_that_a_step_gets_later_is_found(pages: Pages, feed: Feed):
    pages.points = values(1, a=1.0)
    feed.poll()
    pages.points += values(1, late=5.0)
    feed.poll()
    assert feed.series.last("late") == 5.0


def test_a_quiet_poll_changes_nothing(pages: Pages, feed: Feed):
    pages.points = values(1, a=1.0)
    feed.poll()
    feed.poll()
    revision = feed.revision
    feed.poll()
    assert feed.revision == revision


async def messages_of(watch: Watch, cursor: Cursor, n: int) -> list[str]:
    found: list[str] = []
    async for message in stream(watch, cursor):
        found.append(message)
        if len(found) == n:
            break
    return found


def polled(feed: Feed) -> Watch:
    feed.poll()
    feed.poll()
    return Watch(feed, n_polls=1)


def test_a_viewer_that_reconnects_gets_what_it_missed_and_the_step_it_was_at(pages: Pages, feed: Feed):
    pages.points = [p for step in (1, 2, 3) for p in values(step, a=float(step))]
    pages.rows = [{"seq": seq, "type": "t", "message": "m"} for seq in (1, 2)]

    async def reconnect() -> list[str]:
        return await messages_of(polled(feed), Cursor.parse("2:1"), 2)

    _, update = asyncio.run(reconnect())
    cursor, body = read(update)
    assert cursor == "3:2"
    assert body["points"] == [["a", 2, 2.0], ["a", 3, 3.0]]
    assert [event["seq"] for event in body["events"]] == [2]


def test_a_viewer_far_behind_is_told_to_load_the_series_again(
    pages: Pages, feed: Feed, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("headrace_dashboard.live.MAX_CATCH_UP", 5)
    pages.points = [p for step in range(1, 10) for p in values(step, a=1.0)]

    async def reconnect() -> list[str]:
        return await messages_of(polled(feed), Cursor(), 2)

    _, message = asyncio.run(reconnect())
    assert "event: reload" in message


def test_a_value_that_json_lacks_reaches_the_browser_as_null(pages: Pages, feed: Feed):
    pages.points = values(1, a=float("nan"))

    async def connect() -> list[str]:
        return await messages_of(polled(feed), Cursor(), 2)

    assert read(asyncio.run(connect())[1])[1]["points"] == [["a", 1, None]]


def test_a_viewer_is_told_when_the_api_is_down(feed: Feed):
    watch = Watch(feed, trouble=Unavailable("the API does not answer"), n_polls=1)

    async def connect() -> list[str]:
        return await messages_of(watch, Cursor(), 2)

    assert read(asyncio.run(connect())[1])[1] == {"message": "the API does not answer"}
    assert watch.n_viewers == 0
