"""`headrace jobs list` and `show`: which jobs there are, and what is to be said of one."""

from __future__ import annotations

from collections import Counter
from typing import Any

import click

from headrace_cli.backend import with_api
from headrace_cli.options import example, json_option, pairs
from headrace_cli.render import print_json, print_report, print_table, printable

Json = dict[str, Any]
_TOLD_APART = ("notes", "result", "error", "paused_reason", "waiting_reason", "config", "config_toml")
"""Facts of a job that `show` gives a place of their own."""
_TWICE = ("id", "job_type", "fine_tuned_model", "linked_job_id")
"""Names that the API serves beside ours, for older clients."""


@click.command(
    "list", epilog=example("headrace jobs list --status running", "headrace jobs list --tag team=red --json")
)
@with_api
@click.option("--type", "job_type", type=click.Choice(["rl", "sft", "eval"]), help="Only jobs of this kind.")
@click.option(
    "--status",
    type=click.Choice(["queued", "running", "succeeded", "failed", "cancelled"]),
    help="Only jobs in this state.",
)
@click.option("--pool", help="Only jobs of this pool.")
@click.option("--model", help="Only jobs that start from this model, or that ended with this id.")
@click.option("--tag", "tags", multiple=True, metavar="KEY=VALUE",
              help="Only jobs with this tag; may be repeated.")  # fmt: skip
@click.option("--data", "data", multiple=True, metavar="KEY=VALUE",
              help="Only jobs with this value under [data]; may be repeated.")  # fmt: skip
@click.option("--after", metavar="JOB", help="Only jobs behind this one: the next page of the list.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Most jobs shown.")
@json_option
def list_jobs(
    api, job_type: str | None, tags: tuple[str, ...], data: tuple[str, ...], as_json: bool, **chosen: Any
) -> None:
    """List jobs, newest first."""
    page = api.jobs_page(type=job_type, tags=pairs("--tag", tags), data=pairs("--data", data), **chosen)
    found = page["jobs"]
    if as_json:
        print_json(found)
    else:
        headers = ["job", "type", "status", "iteration", "model", "created"]
        print_table(headers, [_row(job) for job in found])
    if page.get("has_more") and found:
        click.echo(f"there are more: --after {found[-1]['job_id']}", err=True)


def _row(job: Json) -> list[object]:
    done = f"{job.get('iteration') or 0}/{job.get('iterations') or '-'}"
    return [job["job_id"], job.get("type"), job["status"], done, job.get("model"), job.get("created_at")]


@click.command(epilog=example("headrace jobs show JOB"))
@with_api
@click.argument("job_id", metavar="JOB")
@json_option
def show(api, job_id: str, as_json: bool) -> None:
    """Show one job: where it stands and why, what of its config had no effect, its runs, its result and
    why attempts at its rollouts failed."""
    job = api.get_job(job_id)
    runs, failed = api.runs(job_id), api.failed_attempts(job_id)
    if as_json:
        print_json(job | {"runs": runs, "failed_attempts": failed})
        return
    hidden = (*_TOLD_APART, *_TWICE)
    print_report(
        {n: value for n, value in job.items() if n not in hidden and value not in (None, "", {}, [])}
    )
    for sentence in _where_it_stands(job):
        click.echo(printable(sentence))
    for note in job.get("notes") or []:
        click.echo(printable(f"note: {note['message']}"))
    if job.get("result"):
        click.echo("result:")
        print_report(job["result"])
    if len(runs) > 1:
        click.echo("runs:")
        keys = ("run_number", "status", "created_at", "started_at", "ended_at")
        print_table(
            ["run", "status", "queued", "started", "ended"], [[run.get(k) for k in keys] for run in runs]
        )
    if failed:
        click.echo(f"failed attempts: {len(failed)}, in time order with `headrace jobs logs {job_id}`")
        print_table(["n", "broke at", "reason"], _by_reason(failed))


def _where_it_stands(job: Json) -> list[str]:
    found = []
    if job.get("waiting_reason"):
        found.append(f"waits: {job['waiting_reason']}")
    if job.get("paused_reason"):
        found.append(f"paused: {job['paused_reason']}")
    if job.get("error"):
        found.append(f"failed: {job['error']}")
    return found


def _by_reason(attempts: list[Json]) -> list[list[object]]:
    counted = Counter(
        (attempt.get("boundary"), attempt.get("reason") or attempt["outcome"]) for attempt in attempts
    )
    return [[n, boundary, reason] for (boundary, reason), n in counted.most_common(10)]
