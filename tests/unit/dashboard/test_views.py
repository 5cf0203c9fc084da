from __future__ import annotations

import doctest
import importlib
from dataclasses import replace

import pytest
from starlette.datastructures import QueryParams
from tests.fakes.api_content import job, rollout_detail

from headrace.errors import BadRequest
from headrace_dashboard.chart_sections import SECTIONS, charts_of
from headrace_dashboard.charts import MAX_LINES
from headrace_dashboard.series import Series
from headrace_dashboard.views.format import number
from headrace_dashboard.views.job import checkpoint_views, engine_view, job_view, report
from headrace_dashboard.views.job_filters import JobFilters
from headrace_dashboard.views.rewards import MAX_EVENTS, reward_rows
from headrace_dashboard.views.trace import turns


@pytest.mark.parametrize(
    "name",
    [
        "access", "live", "series", "settings", "views.format", "views.job", "views.job_filters",
        "views.paging", "views.rewards", "views.trace",
    ],
)  # fmt: skip
def test_the_examples_in_the_docstrings_hold(name: str):
    result = doctest.testmod(importlib.import_module(f"headrace_dashboard.{name}"))
    assert (result.failed, result.attempted > 0) == (0, True)


def test_a_running_job_with_a_reason_shows_as_paused():
    view = job_view(job("job_1", paused_reason="the task app answers 503"))
    assert (view.tone, view.reason, view.is_cancellable) == ("paused", "the task app answers 503", True)


def test_a_job_asked_to_cancel_shows_so_and_cannot_be_asked_again():
    view = job_view(job("job_1", cancel_requested=True))
    assert (view.status_text, view.is_cancellable) == ("cancelling", False)


def test_an_ended_job_shows_its_error_and_no_old_waiting_reason():
    view = job_view(job("job_1", status="failed", error="no task app", waiting_reason="second in the queue"))
    assert (view.error, view.reason, view.is_cancellable) == ("no task app", None, False)


def test_progress_counts_in_the_unit_of_the_kind():
    assert job_view(job("j", "sft", iteration=1200, iterations=5000)).progress_text == "1,200 of 5,000 steps"


def test_the_engine_is_what_its_newest_event_says():
    events = [{"type": "rl.policy.starting"}, {"type": "rl.train.step"}, {"type": "rl.policy.ready"}]
    engine = engine_view(events)
    assert engine is not None
    assert engine.state == "ready"
    assert engine_view([]) is None


def test_a_nested_result_becomes_headings_and_facts():
    tree = report("Result", {"success": 0.9, "difference": {"mean": 0.5, "low": 0.4}, "empty": {}})
    assert tree is not None
    assert [fact.label for fact in tree.facts] == ["success"]
    assert [(part.title, len(part.facts)) for part in tree.parts] == [("difference", 2)]
    assert report("Result", {}) is None


def test_numbers_that_json_lacks_are_words():
    assert number(float("nan")) == "not a number"
    assert number(float("-inf")) == "−∞"


def test_a_second_call_shows_only_what_it_adds_to_the_first():
    detail = rollout_detail("job_1", 3, 0, 0)
    first, second = turns(detail["trajectory"], detail["event_rewards"])
    assert [m.role for m in first.messages] == ["system", "user"]
    assert [m.role for m in second.messages] == ["user"]
    assert [reward.key for reward in second.rewards] == ["wasted step"]
    served = detail["trajectory"]["calls"][1]["tokens"]
    assert [(t.token_id, t.logprob, t.version) for t in second.tokens] == [
        (t["id"], t["logprob"], t["version"]) for t in served
    ]


def test_tokens_of_a_version_that_arrived_during_the_call_are_marked():
    call = {"index": 0, "messages": [], "tokens": [
        {"id": 1, "text": "a", "logprob": -0.1, "version": "1.4"},
        {"id": 2, "text": "b", "logprob": -0.1, "version": "1.5"},
    ]}  # fmt: skip
    (turn,) = turns({"calls": [call]}, [])
    assert [token.is_newer for token in turn.tokens] == [False, True]
    assert turn.versions == ("1.4", "1.5")


def test_a_token_of_no_probability_has_the_darkest_shade():
    call = {"index": 0, "messages": [], "tokens": [{"id": 1, "text": "a", "logprob": None, "version": "1.4"}]}
    (turn,) = turns({"calls": [call]}, [])
    assert (turn.tokens[0].logprob, turn.tokens[0].shade) == (float("-inf"), 4)


def test_a_call_with_no_reply_shows_its_error():
    call = {"index": 0, "messages": [], "reply": None, "error": {"message": "the context is full"}}
    (turn,) = turns({"calls": [call]}, [])
    assert (turn.reply, turn.error) == (None, "the context is full")


def test_a_tool_call_and_parts_of_content_show_as_text():
    reply = {"role": "assistant", "content": [{"type": "text", "text": "hm"}],
             "tool_calls": [{"function": {"name": "move", "arguments": '{"to": 3}'}}]}  # fmt: skip
    (turn,) = turns({"calls": [{"index": 0, "messages": [], "reply": reply}]}, [])
    assert turn.reply is not None
    assert (turn.reply.text, turn.reply.tool_calls) == ("hm", (("move", '{"to": 3}'),))


def test_no_trajectory_is_no_turn():
    assert turns(None, []) == ()


def test_chart_keys_are_unique_within_a_kind():
    for kind, sections in SECTIONS.items():
        assert len(charts_of(kind)) == sum(len(section.charts) for section in sections)


def test_only_an_ended_job_without_success_can_be_resumed():
    shown = {status: job_view(job("j", status=status)).is_resumable for status in
             ("queued", "running", "succeeded", "failed", "cancelled")}  # fmt: skip
    assert [status for status, can in shown.items() if can] == ["failed", "cancelled"]


def test_notes_are_named_by_what_they_say_and_fall_back_to_their_keys():
    notes = [
        {"type": "sft.config.replaced", "message": "trainer_mode = lora trains all weights", "keys": []},
        {"type": "rl.config.not_used", "message": None, "keys": ["a.b", "c"]},
        {"type": "rl.something.new", "message": "x", "keys": []},
    ]
    view = job_view(job("j", notes=notes))
    assert [(note.label, note.message) for note in view.notes] == [
        ("Replaced", "trainer_mode = lora trains all weights"), ("Accepted, not used", "a.b, c"), ("Note", "x")
    ]  # fmt: skip
    assert view.notes_text == "3 notes on the config"
    assert job_view(job("j", notes=notes[:1])).notes_text == "1 note on the config"


def test_a_checkpoint_shows_the_few_metrics_that_tell_it_apart():
    metrics = {"reward.mean": 0.5, "events.wood.mean": 1.0, "train.loss": 0.1}
    [view] = checkpoint_views([{"metrics": metrics, "version": 3}])
    assert view == {"metrics": {"reward.mean": 0.5, "train.loss": 0.1}, "version": 3}


@pytest.mark.parametrize(
    ("query", "names"),
    [("type=RL", "type"), ("status=done", "status"), ("tag=a", "tag"), ("tag=:b", "tag"), ("data=a:", "data"),
     ("tag=a:1&tag=a:2", "tag")],
)  # fmt: skip
def test_a_filter_that_no_job_can_meet_is_refused_by_name(query: str, names: str):
    with pytest.raises(BadRequest, match=f"^{names} "):
        JobFilters.parse(QueryParams(query))


def test_filters_survive_the_way_through_an_address():
    filters = JobFilters(
        "rl", "failed", "p q", "ft:a/b:job_1", (("team", "a&b=c"),), (("url", "http://x:1"),)
    )
    query = QueryParams(filters.link("job_9").partition("?")[2])
    assert JobFilters.parse(query) == replace(filters, after="job_9")
    assert filters.for_api()["data"] == {"url": "http://x:1"}
    assert not JobFilters.parse(QueryParams("tag=&status=+&data=")).is_any


def test_an_open_chart_has_the_most_frequent_events_and_keeps_their_order():
    series = Series()
    series.add({"name": f"events.e{n}.frequency", "step": 1, "value": n / 10} for n in range(9))
    series.add([{"name": "events.e8.mean", "step": 1, "value": 9.0}, {"name": "eval.events.a.frequency", "step": 1,
                 "value": 1.0}])  # fmt: skip
    chart = charts_of("rl")["events"].of(series)
    assert [line.label for line in chart.lines] == ["e3", "e4", "e5", "e6", "e7", "e8"]
    assert len({line.tone for line in chart.lines}) == MAX_LINES
    assert charts_of("rl")["eval_events"].of(series).names == ["eval.events.a.frequency"]


def test_a_row_of_rewards_shows_the_most_frequent_events_first():
    events = {f"e{n}": {"frequency": n / 100, "mean": 1.0} for n in range(20)}
    [row] = reward_rows(
        [{"iteration": 1, "n": 2, "reward_mean": 0.0, "return_mean": 0.0, "std": 0.0, "events": events}]
    )
    assert [event.key for event in row.events] == [f"e{n}" for n in range(19, 19 - MAX_EVENTS, -1)]
    assert row.n_more_events == 20 - MAX_EVENTS
