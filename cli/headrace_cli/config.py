"""`headrace config`: check a config without a server, explain a key, print the schema for an editor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from headrace.errors import ConfigError
from headrace_cli.errors import WRONG_INPUT
from headrace_cli.options import example, json_option
from headrace_cli.render import print_json, printable

TYPES = ("rl", "sft", "eval")


@click.group()
def config() -> None:
    """Check a config, explain a key, print the schema."""


@config.command(epilog=example("headrace config check rl.toml"))
@click.argument(
    "files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path, dir_okay=False)
)
@click.option("--type", "job_type", type=click.Choice(["auto", *TYPES]), default="auto", show_default=True,
              help="Kind of job; `auto` reads it from the config.")  # fmt: skip
@json_option
@click.pass_context
def check(ctx: click.Context, files: tuple[Path, ...], job_type: str, as_json: bool) -> None:
    """Check configs as `headrace train` would: every problem, then what has no effect.

    Needs no server. Exits with 2 when a file has a problem.
    """
    reports = [_report(path, job_type) for path in files]
    if as_json:
        print_json(reports)
    else:
        for report in reports:
            _print(report)
    if any(report["problems"] for report in reports):
        ctx.exit(WRONG_INPUT)


def _report(path: Path, job_type: str) -> dict[str, Any]:
    """`{file, type, problems, warnings}`; `type` is None where the file does not say it."""
    from headrace.config import check as check_config
    from headrace.config.load import infer_type, parse_toml
    from headrace.contracts.job import JobType

    found: dict[str, Any] = {"file": str(path), "type": None, "problems": [], "warnings": []}
    try:
        raw = parse_toml(_text(path), str(path))
        kind = infer_type(raw) if job_type == "auto" else JobType(job_type)
        if kind is None:
            raise ConfigError(
                'it does not say what job it is: add type = "rl", "sft" or "eval", or give --type'
            )
        found["type"] = kind.value
        found["warnings"] = [note.message for note in check_config(raw, kind).notes]
    except ConfigError as error:
        problems = error.details.get("problems")
        found["problems"] = list(problems) if isinstance(problems, list) else [error.message]
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise ConfigError(f"it cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError("it is not UTF-8 text") from error


def _print(report: dict[str, Any]) -> None:
    n = len(report["problems"])
    kind = f"{report['type']} config" if report["type"] else "config"
    verdict = "valid" if not n else f"{n} problem{'s' if n > 1 else ''}"
    click.echo(f"{report['file']}: {kind}, {verdict}", err=bool(n))
    for problem in report["problems"]:
        click.echo(printable(f"  {problem}"), err=True)
    for warning in report["warnings"]:
        click.echo(printable(f"  warning: {warning}"))


@config.command(epilog=example("headrace config explain training.rollouts.seeds"))
@click.argument("key", metavar="KEY")
def explain(key: str) -> None:
    """Say what a config key means: its type, default, and the jobs that have it.

    KEY is `section.key`, `[section] key`, a section, or a key's bare name.
    """
    from headrace.config import explain as explain_key

    click.echo(explain_key(key).rstrip())


@config.command(epilog=example("headrace config schema --type rl > rl.schema.json"))
@click.option(
    "--type", "job_type", type=click.Choice(TYPES), default="rl", show_default=True, help="Kind of job."
)
def schema(job_type: str) -> None:
    """Print the JSON Schema of a kind of config, which editors complete and check TOML by."""
    from headrace.config import json_schema
    from headrace.contracts.job import JobType

    print_json(json_schema(JobType(job_type)))
