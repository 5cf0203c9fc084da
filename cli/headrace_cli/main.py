"""The `headrace` command: its sub-commands, and the one place where an error becomes a sentence."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from headrace.errors import HeadraceError
from headrace_cli.errors import FAILED, INTERRUPTED, exit_code
from headrace_cli.lazy import Entry, LazyGroup

_COMMANDS = {
    "up": Entry("headrace_cli.up:up", "Start the whole stack on this machine; Ctrl-C stops it."),
    "status": Entry("headrace_cli.status:status", "Show the local stack: addresses, pids and states."),
    "train": Entry("headrace_cli.train:train", "Submit training jobs and follow them."),
    "eval": Entry("headrace_cli.evaluate:evaluate", "Submit an evaluation job and print its report."),
    "config": Entry("headrace_cli.config:config", "Check a config, explain a key, print the schema."),
    "jobs": Entry("headrace_cli.jobs:jobs", "List, show, follow, cancel, resume and clone jobs; export."),
    "traces": Entry("headrace_cli.traces:traces", "List and show recorded episodes."),
    "models": Entry("headrace_cli.models:models", "List and show models."),
    "checkpoints": Entry("headrace_cli.models:checkpoints", "List a job's checkpoints."),
    "files": Entry("headrace_cli.files:files", "Upload, list, show, download and delete datasets."),
    "keys": Entry("headrace_cli.keys:keys", "API keys, and the task apps' keys at the API."),
    "serve": Entry("headrace_cli.serve:serve", "Serve a task app."),
    "init": Entry("headrace_cli.init:init", "Write a small task app with configs that run."),
    "version": Entry("headrace_cli.version:version", "Show the versions of this command and of the API."),
    "completion": Entry("headrace_cli.completion:completion", "Print the completion script of a shell."),
}


@click.group(cls=LazyGroup, entries=_COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="headrace", prog_name="headrace")
def cli() -> None:
    """Reinforcement-learning post-training on your own machines.

    Start the stack with `headrace up`, then submit jobs with `headrace train`.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; every failure is one sentence on stderr and an exit code."""
    try:
        code = cli.main(args=arguments, prog_name="headrace", standalone_mode=False, color=_colour())
        sys.stdout.flush()
    except HeadraceError as error:
        _say(error.message, error.details.get("problems"))
        return exit_code(error)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except BrokenPipeError:  # `headrace jobs list | head`: the reader has what it wanted
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return code if isinstance(code, int) else 0


def _say(message: str, problems: object) -> None:
    mark, colour = click.style("error:", fg="red", bold=True), _colour()
    if isinstance(problems, list) and len(problems) > 1:
        click.echo(f"{mark} {len(problems)} problems", err=True, color=colour)
        for problem in problems:
            click.echo(f"  {problem}", err=True)
    else:
        click.echo(f"{mark} {message}", err=True, color=colour)


def _colour() -> bool | None:
    """False where the terminal cannot show colours or its user wants none; None lets Click look."""
    return False if os.environ.get("TERM") == "dumb" or os.environ.get("NO_COLOR") else None
