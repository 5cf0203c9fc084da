"""`headrace jobs metrics` and `rewards`: a job's curves as tables and exports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

import click

from headrace_cli.backend import with_api
from headrace_cli.options import example, json_option, jsonl_option, print_lines, refuse_both
from headrace_cli.render import print_json, print_table

Json = dict[str, Any]
HEADLINES = (
    "reward.mean", "return.mean", "success.rate", "eval.reward_mean", "eval.success", "train.loss", "val.loss",
    "train.learning_rate", "tokens.sampled", "health.invalid_action_rate", "rollouts.truncated_share",
)  # fmt: skip
"""Columns of the table when none were chosen: those of these that the job has."""
PAGE = 5000


@click.command(
    epilog=example(
        "headrace jobs metrics JOB",
        "headrace jobs metrics JOB --name reward.mean --name 'events.*'",
        "headrace jobs metrics JOB --jsonl > metrics.jsonl",
    )
)
@with_api
@click.argument("job_id", metavar="JOB")
@click.option("--name", "names", multiple=True, metavar="PATTERN",
              help="A column, such as reward.mean or 'events.*'; may be repeated.")  # fmt: skip
@click.option("--after-step", type=int, default=-1, metavar="N", help="Only points after this step.")
@click.option("--long", "as_long", is_flag=True, help="One row per point instead of one per step.")
@json_option
@jsonl_option
def metrics(
    api, job_id: str, names: tuple[str, ...], after_step: int, as_long: bool, as_json: bool, as_jsonl: bool
) -> None:
    """Show a job's metrics: one row per step, one column per metric.

    Without --name the table holds the headlines, and JSON every point.
    """
    refuse_both(json=as_json, jsonl=as_jsonl, long=as_long)
    if as_jsonl:
        print_lines(_chosen(api.export_metrics(job_id, after_step), names))
        return
    points = list(_chosen(_all_points(api, job_id, after_step), names))
    if as_json:
        print_json(points)
    elif as_long:
        print_table(["step", "name", "value"], [[p["step"], p["name"], p["value"]] for p in points])
    else:
        _print_by_step(points, names)


def _all_points(api, job_id: str, after_step: int) -> Iterator[Json]:
    """Page by page; a page ends between two steps."""
    while page := api.metrics(job_id, after_step=after_step, limit=PAGE):
        yield from page
        after_step = page[-1]["step"]


def _chosen(points: Iterable[Json], patterns: Sequence[str]) -> Iterator[Json]:
    return (p for p in points if not patterns or any(fnmatchcase(p["name"], one) for one in patterns))


def _print_by_step(points: list[Json], patterns: Sequence[str]) -> None:
    from headrace.client.rows import by_step

    there = {point["name"] for point in points}
    columns = sorted(there) if patterns else [name for name in HEADLINES if name in there] or sorted(there)
    rows = [[row["step"], *(row.get(name) for name in columns)] for row in by_step(points)]
    print_table(["step", *columns], rows)
    left = len(there) - len(columns)
    if left:
        click.echo(f"{left} more metrics: --name '*' shows all, --long and --jsonl list them", err=True)


@click.command(epilog=example("headrace jobs rewards JOB", "headrace jobs rewards JOB --jsonl"))
@with_api
@click.argument("job_id", metavar="JOB")
@click.option("--purpose", type=click.Choice(["train", "eval"]),
              help="Episodes of training or of evaluation.  [default: what the job itself is]")  # fmt: skip
@json_option
@jsonl_option
def rewards(api, job_id: str, purpose: str | None, as_json: bool, as_jsonl: bool) -> None:
    """Show a job's rewards by iteration: mean, spread, and how often each event occurred.

    The reward of each single rollout is in `headrace traces list JOB --jsonl`.
    """
    refuse_both(json=as_json, jsonl=as_jsonl)
    found = api.rewards(job_id, purpose)
    if as_json:
        print_json(found)
    elif as_jsonl:
        print_lines(found)
    else:
        events = sorted({key for row in found for key in row.get("events") or {}})
        headers = ["iteration", "n", "reward", "return", "std", *events]
        print_table(headers, [_reward_row(row, events) for row in found])


def _reward_row(row: Json, events: Sequence[str]) -> list[object]:
    shares = [(row.get("events") or {}).get(key, {}).get("frequency") for key in events]
    return [
        row["iteration"],
        row["n"],
        row.get("reward_mean"),
        row.get("return_mean"),
        row.get("std"),
        *shares,
    ]
