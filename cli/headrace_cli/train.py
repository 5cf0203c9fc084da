"""`headrace train`: validate, check the task app, upload, submit, and follow each config in order."""

from __future__ import annotations

from pathlib import Path

import click

from headrace_cli.backend import backend_options


def job_options(command):
    """The options that `headrace train` and `headrace eval` share."""
    for option in reversed(
        (
            click.option("--config", "configs", multiple=True, required=True, metavar="FILE",
                         type=click.Path(path_type=Path, dir_okay=False),
                         help="TOML config; several are submitted in order, each after the one before."),
            click.option("--task-url", metavar="URL",
                         help="Base URL of the task app, over the config's (also TASK_APP_URL)."),
            click.option("--model", help="Base model or model id, over the config's."),
            click.option("--idempotency", metavar="KEY",
                         help="Submitting the same config with the same key again gives the same job."),
            click.option("--dry-run", is_flag=True, help="Print the payload of each config and stop."),
            click.option("--poll/--no-poll", default=True, show_default=True,
                         help="Follow the job until it ends."),
            click.option("--poll-timeout", type=click.FloatRange(min=0, min_open=True), default=3600.0,
                         show_default=True, metavar="S", help="Stop following after so long (exit code 3)."),
            click.option("--poll-interval", type=click.FloatRange(min=0.1), default=2.0,
                         show_default=True, metavar="S", help="Time between two looks at the job."),
            click.option("--json", "as_json", is_flag=True,
                         help="Each job as one line of JSON on stdout; progress goes to stderr."),
        )
    ):  # fmt: skip
        command = option(command)
    return backend_options(command)


@click.command()
@job_options
@click.option(
    "--type",
    "job_type",
    type=click.Choice(["auto", "rl", "sft", "eval"]),
    default="auto",
    show_default=True,
    help="Kind of job; `auto` reads it from the config.",
)
@click.option(
    "--dataset",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Chat JSONL of an SFT job, over the config's.",
)
def train(job_type: str, dataset: Path | None, task_url: str | None, model: str | None, **options) -> None:  # fmt: skip
    """Submit training jobs and follow them.

    Exit codes: 0 succeeded, 1 refused, failed or cancelled, 2 wrong call or config, 3 time-out,
    130 interrupted (the job goes on).
    """
    from headrace_cli.flow import Options, submit_all
    from headrace_cli.submission import Overrides

    submit_all(Overrides(job_type, task_url, dataset, model), Options(**options))
