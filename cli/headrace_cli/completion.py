"""`headrace completion`: the script that makes a shell complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from headrace_cli.options import example

VARIABLE = "_HEADRACE_COMPLETE"
"""How the script asks: the command line looks for it by its program's name."""


@click.command(
    epilog=example(
        "headrace completion bash > ~/.local/share/bash-completion/completions/headrace",
        "headrace completion zsh > ~/.zfunc/_headrace      # with ~/.zfunc in fpath, before compinit",
        "headrace completion fish > ~/.config/fish/completions/headrace.fish",
    )
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes commands and options in SHELL."""
    from headrace_cli.main import cli

    kind = get_completion_class(shell)
    assert kind is not None, shell
    script = kind(cli, {}, "headrace", VARIABLE)
    # not source(): for bash that starts a shell to ask for its version, and this may run without one
    click.echo(script.source_template % script.source_vars())
