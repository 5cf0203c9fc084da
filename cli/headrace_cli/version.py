"""`headrace version`: what runs here, and what answers there."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import click

import headrace
from headrace.errors import HeadraceError
from headrace_cli.backend import backend_options, connect
from headrace_cli.options import example, json_option
from headrace_cli.render import print_json


@click.command(epilog=example("headrace version --json"))
@backend_options
@json_option
def version(backend: str | None, env_file: tuple[Path, ...], as_json: bool) -> None:
    """Show the versions of this command, of Python, and of the API where one answers."""
    found = {
        "headrace": headrace.__version__,
        "python": platform.python_version(),
        "api": _api(backend, env_file),
    }
    if as_json:
        print_json(found)
        return
    click.echo(f"headrace {found['headrace']}\npython   {found['python']}")
    api = found["api"]
    click.echo(
        f"api      {api['version']} at {api['url']}" if api["version"] else f"api      none: {api['error']}"
    )


def _api(backend: str | None, env_file: tuple[Path, ...]) -> dict[str, Any]:
    """`{url, version, error}`; no API is an answer here and not a failure."""
    from headrace_cli.envfiles import merged

    url = None
    try:
        with connect(backend, merged(env_file, os.environ)) as api:
            url = api.base_url
            return {"url": url, "version": api.health().get("version"), "error": None}
    except HeadraceError as error:
        return {"url": url, "version": None, "error": error.message}
