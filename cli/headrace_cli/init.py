"""`headrace init`: a small task app with configs that run."""

from __future__ import annotations

from pathlib import Path

import click

from headrace_cli.options import example


@click.command(epilog=example("headrace init my-task"))
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=Path())
def init(folder: Path) -> None:
    """Write a small task app with RL, SFT and evaluation configs into FOLDER (default: here)."""
    from headrace.task_app import scaffold

    for path in scaffold.write(folder):
        click.echo(f"wrote {path}")
