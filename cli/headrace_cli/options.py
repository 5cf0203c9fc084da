"""Options and texts that many commands share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from headrace.errors import ConfigError

json_option = click.option("--json", "as_json", is_flag=True, help="As JSON.")
jsonl_option = click.option("--jsonl", "as_jsonl", is_flag=True, help="As lines of JSON, all of them.")


def example(*lines: str) -> str:
    r"""The end of a command's help: how it is called.

    >>> example("headrace jobs list")
    '\x08\nExample:\n  headrace jobs list'
    """
    return "\n".join(["\b", "Example:" if len(lines) == 1 else "Examples:", *(f"  {line}" for line in lines)])


def pairs(option: str, given: Iterable[str]) -> dict[str, str]:
    """`KEY=VALUE` (or `KEY:VALUE`) texts as a table; raises ConfigError for anything else.

    >>> pairs("--tag", ["team=red"])
    {'team': 'red'}
    """
    found = {}
    for text in given:
        key, mark, value = text.partition("=" if "=" in text else ":")
        if not mark or not key:
            raise ConfigError(f"{option} {text} is not KEY=VALUE")
        found[key] = value
    return found


def print_lines(rows: Iterable[Any]) -> None:
    """Each row as one line of JSON, as it comes."""
    for row in rows:
        print_line(row)


def print_line(row: Any) -> None:
    import json

    click.echo(json.dumps(row, ensure_ascii=False, default=str))


def refuse_both(**flags: bool) -> None:
    """Raise UsageError where more than one of these options was given."""
    named = [f"--{name.replace('_', '-')}" for name, is_given in flags.items() if is_given]
    if len(named) > 1:
        raise click.UsageError(f"{' and '.join(named)} exclude each other")
