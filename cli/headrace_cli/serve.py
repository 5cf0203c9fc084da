"""`headrace serve`: run a task app."""

from __future__ import annotations

import os
from pathlib import Path

import click

from headrace_cli.options import example


@click.command(epilog=example("headrace serve my-task/task_app.py:app --port 8790"))
@click.argument("target", metavar="MODULE:APP|FILE.py:APP")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(1, 65535), default=8790, show_default=True, help="Port to listen on."
)
@click.option(
    "--env-file",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="File of KEY=VALUE lines, set before the app is loaded; the shell's own variables win.",
)
def serve(target: str, host: str, port: int, env_file: tuple[Path, ...]) -> None:  # fmt: skip
    """Serve a task app until Ctrl-C.

    TARGET names a TaskApp object, such as `examples.walk.task_app:app` or `my_app.py:app`.
    """
    from headrace.errors import Unavailable
    from headrace_cli.envfiles import merged
    from headrace_cli.stack.ports import LOOPBACK, require_free

    os.environ.update(merged(env_file, os.environ))
    try:
        from headrace import task_app
    except ImportError as error:
        raise Unavailable(
            f"serving a task app needs {error.name}: pip install 'headrace[task-app]'"
        ) from error
    from headrace.task_app.server import require_usable

    app = task_app.load(target)
    require_usable(app, host)
    if host in (LOOPBACK, "localhost"):
        require_free({"task app": port})
    click.echo(f"task app {target} at http://{host}:{port}  (Ctrl-C stops it)")
    task_app.serve(app, host=host, port=port)
