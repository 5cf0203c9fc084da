"""`headrace train`: validate, check the task app, upload, submit, and follow each config in order."""

from __future__ import annotations

from pathlib import Path

import click

from headrace_cli.backend import backend_options
from headrace_cli.options import example


def job_options(command):
    """The options that `headrace train` and `headrace eval` share."""
    for option in reversed(
        (
            click.option("--config", "configs", multiple=True, metavar="FILE",
                         type=click.Path(path_type=Path, dir_okay=False),
                         help="TOML config; several are submitted in order, each after the one before.  "
                              "[default: asked for on a terminal]"),
            click.option("--task-url", metavar="URL",
                         help="Base URL of the task app, over TASK_APP_URL and the config's."),
            click.option("--model", help="Base model or model id, over the config's."),
            click.option("--allow-experimental/--no-allow-experimental", default=None,
                         help="Whether models that the operator marked experimental may be used.  "
                              "[default: SDK_EXPERIMENTAL]"),
            click.option("--mint", is_flag=True,
                         help="Where no ENVIRONMENT_API_KEY is known, make one, write it to the last --env-file "
                              "and store it at the API; without this a terminal is asked first."),
            click.option("--idempotency", metavar="KEY",
                         help="Submitting the same config with the same key again gives the same job."),
            click.option("--dry-run", is_flag=True,
                         help="Print the payload and every default of each config; create nothing."),
            click.option("--poll/--no-poll", default=True, show_default=True,
                         help="Follow the job until it ends."),
            click.option("--poll-timeout", type=click.FloatRange(min=0, min_open=True), default=3600.0,
                         show_default=True, metavar="S",
                         help="Stop following a job, or waiting for a file, after so long (exit code 3)."),
            click.option("--poll-interval", type=click.FloatRange(min=0.1), default=5.0,
                         show_default=True, metavar="S", help="Time between two looks at the job."),
            click.option("--json", "as_json", is_flag=True,
                         help="Each job as one line of JSON on stdout; all else goes to stderr."),
        )
    ):  # fmt: skip
        command = option(command)
    return backend_options(command)


@click.command(
    epilog=example(
        "headrace train --config rl.toml --env-file .env", "headrace train --config sft.toml --dry-run"
    )
)
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
@click.option(
    "--examples",
    type=click.IntRange(min=1),
    metavar="N",
    help="Send only the first N conversations of an SFT job's dataset.",
)
def train(
    job_type: str,
    dataset: Path | None,
    examples: int | None,
    task_url: str | None,
    model: str | None,
    **options,
) -> None:
    """Submit training jobs and follow them.

    Exit codes: 0 succeeded, 1 refused, failed or cancelled, 2 wrong call or config, 3 time-out,
    130 interrupted (the job goes on).
    """
    from headrace_cli.flow import submit_all
    from headrace_cli.session import Options
    from headrace_cli.submission import Overrides

    chosen = Options(**options)
    submit_all(Overrides(job_type, task_url, dataset, model, examples, chosen.mint), chosen)
