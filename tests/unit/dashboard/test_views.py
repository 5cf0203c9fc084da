from __future__ import annotations

import doctest
import importlib

import pytest
from tests.fakes.api_content import job, rollout_detail

from headrace_dashboard.charts import SECTIONS, charts_of
from headrace_dashboard.views.format import number
from headrace_dashboard.views.job import engine_view, job_view, report
from headrace_dashboard.views.trace import turns


@pytest.mark.parametrize(
    "name",
    ["access", "live", "series", "settings", "views.format", "views.job", "views.paging", "views.trace"],
)
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
