"""A click group that imports a command's module only when that command is called."""

from __future__ import annotations

import importlib
from dataclasses import dataclass

import click
from click.shell_completion import CompletionItem


@dataclass(frozen=True)
class Entry:
    """Where a command lives, and the line that the group's help shows without importing it."""

    target: str
    """`module:attribute`."""
    summary: str


class LazyGroup(click.Group):
    """Commands by name; `--help` of the group imports none of them."""

    def __init__(self, *args, entries: dict[str, Entry], **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self._entries = entries

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self._entries.get(cmd_name)
        if entry is None:
            return None
        module, _, attribute = entry.target.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command), entry.target
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in self._entries.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names of commands, again without importing them."""
        found = [
            CompletionItem(name, help=entry.summary)
            for name, entry in self._entries.items()
            if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)
