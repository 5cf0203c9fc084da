"""Questions on a terminal. Without one nothing is asked: the caller's error names the option instead."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

import click

from headrace_cli.render import printable

T = TypeVar("T")


def can_ask() -> bool:
    """Whether a person is there to answer."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def choose(title: str, options: Sequence[str], *, default: int = 1, none: str | None = None) -> int | None:
    """The index of the chosen option, None for `none` (offered as 0); a wrong answer is asked again."""
    click.echo(f"{title}:")
    for number, option in enumerate(options, start=1):
        click.echo(printable(f"  {number}) {option}"))
    if none is not None:
        click.echo(f"  0) {none}")
    lowest = 1 if none is None else 0

    def number_of(answer: str) -> int:
        if not answer.isdecimal() or not lowest <= int(answer) <= len(options):
            raise ValueError(f"give a number from {lowest} to {len(options)}")
        return int(answer)

    chosen = ask("Choice", str(default), number_of)
    return chosen - 1 if chosen else None


def ask(question: str, default: str, read: Callable[[str], T]) -> T:
    """The answer as `read` makes it; what it refuses with ValueError is said, and asked again."""
    while True:
        answer = click.prompt(question, default=default).strip()
        try:
            return read(answer)
        except ValueError as error:
            click.echo(printable(f"{answer!r} does not fit: {error}"))
