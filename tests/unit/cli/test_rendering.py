"""Lines, curves and tables."""

import io

import pytest
from rich.console import Console

from headrace.errors import JobFailed
from headrace_cli.follow import require_success
from headrace_cli.live import picture
from headrace_cli.progress import Progress, plain_line
from headrace_cli.render import clock, print_report, print_table, printable, sparkline

JOB = {"job_id": "job_1", "type": "rl", "status": "running", "iteration": 3, "iterations": 40}


def test_a_plain_line_says_status_iteration_and_headline_metrics():
    progress = Progress(JOB, {"reward.mean": {1: 0.25, 2: 0.5}, "train.loss": {2: 0.1}})
    assert plain_line(progress, "00:15") == "[00:15] running iteration 3/40 reward=0.5 loss=0.1"


def test_what_a_job_waits_for_is_said():
    progress = Progress({**JOB, "waiting_reason": "the engine starts"})
    assert plain_line(progress, "00:15").endswith("(the engine starts)")


@pytest.mark.parametrize(("job_type", "unit"), [("sft", "step"), ("eval", "episode"), ("rl", "iteration")])
def test_iterations_are_named_for_what_they_count(job_type, unit):
    assert f" {unit} 3/40" in plain_line(Progress({**JOB, "type": job_type}), "00:00")


def test_the_live_view_shows_the_curve_and_the_last_events_without_their_control_characters():
    progress = Progress(
        JOB,
        {"reward.mean": {1: 0.0, 2: 1.0}},
        [{"seq": 1, "type": "rl.train.step", "level": "info", "message": "\x1b[31mred [bold]"}],
    )
    console = Console(file=io.StringIO(), width=100)
    console.print(picture(progress, 75))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "01:15  job_1  running" in text
    assert "3/40" in text
    assert "reward.mean ▁█ 1" in text
    assert "[31mred [bold]" in text
    assert "\x1b" not in text


def test_a_sparkline_shows_the_last_finite_values():
    assert sparkline([0, 1, float("nan"), 2], width=2) == "▁█"
    assert sparkline([1, 1]) == "▄▄"
    assert sparkline([]) == ""


def test_tables_have_aligned_columns_and_no_control_characters(capsys):
    print_table(["name", "n"], [["a", 1], ["longer\x07", None]])
    assert capsys.readouterr().out == "name    n\na       1\nlonger  -\n"
    print_table(["name"], [])
    assert capsys.readouterr().out == "none\n"


def test_a_report_flattens_small_tables_and_counts_long_ones(capsys):
    print_report({"success": 0.25, "difference": {"mean": 0.5}, "per_seed": {str(n): [1] for n in range(20)}})
    assert capsys.readouterr().out.splitlines() == [
        "  success          0.25",
        "  difference.mean  0.5",
        "  per_seed         20 values",
    ]


def test_clock_and_printable():
    assert (clock(59.9), clock(3600)) == ("00:59", "1:00:00")
    assert printable("a\tb\x00") == "a b"


@pytest.mark.parametrize(
    ("job", "sentence"),
    [
        ({"status": "failed", "error": "the task app went away"}, "job j failed: the task app went away"),
        ({"status": "failed", "error": {"message": "no such model"}}, "job j failed: no such model"),
        ({"status": "failed", "error": None}, "job j failed: no reason was recorded"),
        ({"status": "cancelled"}, "job j was cancelled"),
    ],
)
def test_a_job_that_did_not_succeed_ends_with_its_reason(job, sentence):
    with pytest.raises(JobFailed) as caught:
        require_success({"job_id": "j", **job})
    assert caught.value.message == sentence
