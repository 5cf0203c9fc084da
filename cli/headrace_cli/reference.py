"""The page of every command, written from the commands: `python -m headrace_cli.reference`.

What `--help` says is the documentation, so the page cannot drift from the code.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

from headrace_cli.main import cli

COMMON = ("backend", "env_file")
"""Options of all commands that talk to the API: told once, and named in each section."""

INTRODUCTION = """\
# Commands

Written from the code by `python -m headrace_cli.reference`. Every command says the same with `--help`.

## What they share

Commands that talk to an API find it by `--backend`, else by the environment (`HEADRACE_API_URL`), else they take
the stack that runs on this machine. The key is `HEADRACE_API_KEY` (or `SYNTH_API_KEY`), from the shell or from an
`--env-file`; a stack on this machine also answers to the key that `headrace up` left in its home folder.

| option | meaning |
| --- | --- |
| `--backend URL` | the API |
| `--env-file FILE` | file of `KEY=VALUE` lines; may be repeated, and the shell's own variables win |

What was asked for goes to stdout and everything else to stderr. `--json` prints one JSON value, `--jsonl` one JSON
value a line and all of them: an export. Without a terminal nothing prompts.

| exit code | meaning |
| --- | --- |
| 0 | done; a followed job succeeded |
| 1 | refused; a followed job failed or was cancelled; a ledger that does not add up |
| 2 | the call, the config or the dataset is wrong |
| 3 | time-out: the job goes on |
| 130 | interrupted: the job goes on |

`headrace --version` prints the version, `-h` is short for `--help`.

In bash, `headrace completion bash` prints what completes commands and options; zsh and fish are as easy
([below](#headrace-completion)).
"""


def page() -> str:
    """Markdown of the whole reference."""
    sections = [INTRODUCTION.rstrip()]
    for name in cli.list_commands(click.Context(cli)):
        sections += list(_sections(_command(cli, name), ("headrace", name), level=2))
    return "\n\n".join(sections) + "\n"


def leaves(
    command: click.Command = cli, path: tuple[str, ...] = ("headrace",)
) -> Iterator[tuple[str, click.Command]]:
    """(full name, command) of every command that does something."""
    if not isinstance(command, click.Group):
        yield " ".join(path), command
        return
    for name in command.list_commands(click.Context(command)):
        yield from leaves(_command(command, name), (*path, name))


def _command(group: click.Group, name: str) -> click.Command:
    found = group.get_command(click.Context(group), name)
    assert found is not None, name
    return found


def _sections(command: click.Command, path: tuple[str, ...], level: int) -> Iterator[str]:
    heading = f"{'#' * level} headrace {' '.join(path[1:])}"
    if isinstance(command, click.Group):
        yield f"{heading}\n\n{_text(command)}"
        for name in command.list_commands(click.Context(command)):
            yield from _sections(_command(command, name), (*path, name), level + 1)
        return
    arguments = [
        p.make_metavar(click.Context(command)) for p in command.params if isinstance(p, click.Argument)
    ]
    call = f"`{' '.join([*path, *arguments])}`"
    yield "\n\n".join(
        part for part in (heading, call, _text(command), _examples(command), _options(command)) if part
    )


def _text(command: click.Command) -> str:
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _examples(command: click.Command) -> str:
    lines = [line.strip() for line in (command.epilog or "").splitlines() if line.startswith("  ")]
    return "\n".join(["```sh", *lines, "```"]) if lines else ""


def _options(command: click.Command) -> str:
    options = [param for param in command.params if isinstance(param, click.Option)]
    own = [option for option in options if option.name not in COMMON]
    rows = [f"| `{_call_of(option)}` | {_meaning(option)} |" for option in own]
    table = "\n".join(["| option | meaning |", "| --- | --- |", *rows]) if rows else ""
    shared = [f"`{option.opts[0]}`" for option in options if option.name in COMMON]
    also = f"Takes {' and '.join(shared)}, too." if shared else ""
    return "\n\n".join(part for part in (table, also) if part)


def _call_of(option: click.Option) -> str:
    names = ", ".join(sorted(option.opts, key=len)) + "".join(f"/{name}" for name in option.secondary_opts)
    return names if option.is_flag else f"{names} {_metavar(option)}"


def _metavar(option: click.Option) -> str:
    if option.metavar:
        return option.metavar
    if isinstance(option.type, click.Choice):
        return "\\|".join(map(str, option.type.choices))  # a bare one would end the table's cell
    if isinstance(option.type, click.Path):
        return "PATH"
    is_number = isinstance(option.type, click.types.IntParamType | click.types.FloatParamType)
    return "N" if is_number else "TEXT"


def _meaning(option: click.Option) -> str:
    """The help text, with a default that it does not name itself."""
    text = " ".join((option.help or "").split())
    if option.show_default and "[default:" not in text:
        shown = f"{option.default:g}" if isinstance(option.default, float) else option.default
        if option.secondary_opts:
            shown = (option.opts if option.default else option.secondary_opts)[0]
        text += f" [default: {shown}]"
    return re.sub(r"\[default: (.*)\]$", r"Default: \1", text.replace("|", "\\|"))


if __name__ == "__main__":
    print(page(), end="")
