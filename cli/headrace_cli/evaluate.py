"""`headrace eval`: the same flow as `headrace train` for one kind of job, and its report at the end."""

from __future__ import annotations

import click

from headrace_cli.options import example
from headrace_cli.train import job_options


@click.command("eval", epilog=example("headrace eval --config eval.toml --model ft:tiny:JOB"))
@job_options
def evaluate(task_url: str | None, model: str | None, **options) -> None:
    """Submit an evaluation job and print its report.

    Exit codes are those of `headrace train`.
    """
    from headrace_cli.flow import submit_all
    from headrace_cli.session import Options
    from headrace_cli.submission import Overrides

    chosen = Options(**options)
    over = Overrides("eval", task_url, model=model, mint=chosen.mint, command="eval")
    submit_all(over, chosen)
