"""`headrace jobs follow`, `cancel`, `resume`, `clone` and `checkpoints`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from headrace.errors import ConfigError
from headrace_cli.backend import with_api
from headrace_cli.options import example, json_option, pairs
from headrace_cli.render import print_json, print_table, printable


@click.command(epilog=example("headrace jobs follow JOB --poll-timeout 600"))
@with_api
@click.argument("job_id", metavar="JOB")
@click.option("--poll-timeout", type=click.FloatRange(min=0, min_open=True), default=86400.0,
              show_default=True, metavar="S", help="Stop following after so long (exit code 3).")  # fmt: skip
@click.option("--poll-interval", type=click.FloatRange(min=0.1), default=2.0,
              show_default=True, metavar="S", help="Time between two looks at the job.")  # fmt: skip
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


@click.command(epilog=example("headrace jobs cancel JOB"))
@with_api
@click.argument("job_id", metavar="JOB")
@json_option
def cancel(api, job_id: str, as_json: bool) -> None:
    """Cancel a job; what it has checkpointed stays, and `jobs resume` goes on from there."""
    job = api.cancel_job(job_id)
    if as_json:
        print_json(job)
    else:
        asked = "cancellation asked for" if job["status"] == "running" else job["status"]
        click.echo(f"job {job_id}: {asked}")


@click.command(epilog=example("headrace jobs resume JOB"))
@with_api
@click.argument("job_id", metavar="JOB")
@json_option
def resume(api, job_id: str, as_json: bool) -> None:
    """Queue a failed or cancelled job again; RL and SFT go on from their newest whole checkpoint."""
    job = api.resume_job(job_id)
    if as_json:
        print_json(job)
    else:
        click.echo(f"job {job_id}: {job['status']}; follow it with `headrace jobs follow {job_id}`")


@click.command(
    epilog=example(
        "headrace jobs clone JOB --set training.learning_rate=5e-6",
        "headrace jobs clone JOB --config rl.toml --idempotency second-try",
    )
)
@with_api
@click.argument("job_id", metavar="JOB")
@click.option("--set", "overrides", multiple=True, metavar="SECTION.KEY=VALUE",
              help="A config key with another value, as TOML writes it; may be repeated.")  # fmt: skip
@click.option("--config", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="This TOML config in place of the job's own.")  # fmt: skip
@click.option("--idempotency", metavar="KEY", help="The same clone with the same key again is the same job.")
@json_option
def clone(
    api, job_id: str, overrides: tuple[str, ...], config: Path | None, idempotency: str | None, as_json: bool
) -> None:
    """Submit a job's config again as a new job, with some keys changed. Unknown keys are refused."""
    whole = None if config is None else _read(config)
    changed = {key: _value(text) for key, text in pairs("--set", overrides).items()}
    made = api.clone_job(job_id, config=whole, overrides=changed or None, idempotency_key=idempotency)
    if as_json:
        print_json(made)
    else:
        click.echo(f"job {made['job_id']} is a clone of {job_id}")


def _read(path: Path) -> dict[str, Any]:
    import json

    from headrace.config.load import parse_toml

    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--config {path} cannot be read: {error}") from error
    return json.loads(json.dumps(parse_toml(text, str(path)), default=str))


def _value(text: str) -> Any:
    """A value as TOML writes it; what is none (`walk`, `http://...`) is text.

    >>> _value("5e-6"), _value("true"), _value("[1, 2]"), _value("walk")
    (5e-06, True, [1, 2], 'walk')
    """
    import tomllib

    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


@click.command(epilog=example("headrace jobs checkpoints JOB"))
@with_api
@click.argument("job_id", metavar="JOB")
@json_option
def checkpoints(api, job_id: str, as_json: bool) -> None:
    """List a job's checkpoints, newest first; `checkpoint:<id>` is a model that a job may start from."""
    found = api.checkpoints(job_id)
    if as_json:
        print_json(found)
        return
    keys = ("checkpoint_id", "iteration", "step", "created_at", "path")
    print_table(
        ["checkpoint", "iteration", "step", "created", "path"], [[c.get(k) for k in keys] for c in found]
    )
