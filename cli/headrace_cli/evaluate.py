"""`headrace eval`: the same flow as `headrace train` for one kind of job, and its report at the end."""

from __future__ import annotations

import click

from headrace_cli.train import job_options


@click.command("eval")
@job_options
def evaluate(task_url: str | None, model: str | None, **options) -> None:
    """Submit an evaluation job and print its report.

    Exit codes are those of `headrace train`.
    """
    from headrace_cli.flow import Options, submit_all
    from headrace_cli.submission import Overrides

    submit_all(Overrides("eval", task_url, None, model), Options(**options))
