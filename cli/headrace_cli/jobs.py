"""`headrace jobs`: list, show, follow and cancel jobs."""

from __future__ import annotations

from typing import Any

import click

from headrace.errors import ConfigError
from headrace_cli.backend import with_api
from headrace_cli.render import print_json, print_report, print_table, printable

json_option = click.option("--json", "as_json", is_flag=True, help="As JSON.")


@click.group()
def jobs() -> None:
    """List, show, follow and cancel jobs."""


@jobs.command("list")
@with_api
@click.option("--type", "job_type", type=click.Choice(["rl", "sft", "eval"]), help="Only jobs of this kind.")
@click.option("--status", type=click.Choice(["queued", "running", "succeeded", "failed", "cancelled"]))
@click.option("--pool", help="Only jobs of this pool.")
@click.option("--model", help="Only jobs of this model.")
@click.option(
    "--tag", "tags", multiple=True, metavar="KEY=VALUE", help="Only jobs with this tag; may be repeated."
)
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@json_option
def list_jobs(
    api,
    job_type: str | None,
    status: str | None,
    pool: str | None,
    model: str | None,
    tags: tuple[str, ...],
    limit: int,
    as_json: bool,
) -> None:
    """List jobs, newest first."""
    found = api.list_jobs(type=job_type, status=status, pool=pool, model=model, tags=_tags(tags), limit=limit)
    if as_json:
        print_json(found)
        return
    rows = [
        [
            job["job_id"],
            job.get("type"),
            job["status"],
            f"{job.get('iteration') or 0}/{job.get('iterations') or '-'}",
            job.get("model"),
            job.get("created_at"),
        ]
        for job in found
    ]
    print_table(["job", "type", "status", "iteration", "model", "created"], rows)


@jobs.command()
@with_api
@click.argument("job_id")
@json_option
def show(api, job_id: str, as_json: bool) -> None:
    """Show one job."""
    job = api.get_job(job_id)
    if as_json:
        print_json(job)
    else:
        print_report({name: value for name, value in job.items() if value not in (None, "", {}, [])})


@jobs.command()
@with_api
@click.argument("job_id")
@click.option("--since", type=click.IntRange(0), default=0, help="Only events after this sequence number.")
@click.option("--limit", type=click.IntRange(1, 1000), default=200, show_default=True)
@json_option
def events(api, job_id: str, since: int, limit: int, as_json: bool) -> None:
    """Show a job's events, oldest first."""
    found = api.events(job_id, since_seq=since, limit=limit)
    if as_json:
        print_json(found)
        return
    rows = [[e["seq"], e.get("created_at"), e.get("level"), e["type"], e.get("message")] for e in found]
    print_table(["seq", "at", "level", "type", "message"], rows)


@jobs.command()
@with_api
@click.argument("job_id")
@click.option("--name", help="Only this metric, such as reward.mean.")
@click.option("--after-step", type=int, default=-1, help="Only points after this step.")
@json_option
def metrics(api, job_id: str, name: str | None, after_step: int, as_json: bool) -> None:
    """Show a job's metrics by step."""
    found = api.metrics(job_id, after_step=after_step, name=name)
    if as_json:
        print_json(found)
    else:
        print_table(["step", "name", "value"], [[p["step"], p["name"], p["value"]] for p in found])


@jobs.command()
@with_api
@click.argument("job_id")
@json_option
def cancel(api, job_id: str, as_json: bool) -> None:
    """Cancel a job; what it has checkpointed stays."""
    job = api.cancel_job(job_id)
    if as_json:
        print_json(job)
    else:
        asked = "cancellation asked for" if job["status"] == "running" else job["status"]
        click.echo(f"job {job_id}: {asked}")


@jobs.command()
@with_api
@click.argument("job_id")
@json_option
def ledger(api, job_id: str, as_json: bool) -> None:
    """Show which planned rollouts moved the weights, and why the others did not."""
    found = api.ledger(job_id)
    if as_json:
        print_json(found)
        return
    summary: dict[str, Any] = found["summary"]
    rows = [["planned", summary["planned"]], ["trained", summary["trained"]]]
    rows += [[f"not trained: {reason}", n] for reason, n in summary.get("not_trained", {}).items()]
    print_table(["rollouts", "n"], rows)
    click.echo("every planned rollout is accounted for" if summary.get("is_complete") else "not complete yet")


@jobs.command()
@with_api
@click.argument("job_id")
@click.option(
    "--poll-timeout", type=click.FloatRange(min=0, min_open=True), default=86400.0, show_default=True
)
@click.option("--poll-interval", type=click.FloatRange(min=0.1), default=2.0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="The job as JSON at the end; progress goes to stderr.")
def follow(api, job_id: str, poll_timeout: float, poll_interval: float, as_json: bool) -> None:
    """Follow a job until it ends; exit codes are those of `headrace train`."""
    from headrace_cli import follow as following

    job = following.follow(
        api,
        api.get_job(job_id),
        following.view_for(as_json),
        timeout_s=poll_timeout,
        interval_s=poll_interval,
    )
    if as_json:
        print_json(job)
    following.require_success(job)
    if not as_json:
        click.echo(printable(f"job {job_id} succeeded"))


def _tags(given: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for text in given:
        key, mark, value = text.partition("=" if "=" in text else ":")
        if not mark:
            raise ConfigError(f"--tag {text} is not KEY=VALUE")
        pairs[key] = value
    return pairs
