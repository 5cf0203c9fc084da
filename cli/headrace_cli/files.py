"""`headrace files`: datasets at the API."""

from __future__ import annotations

from pathlib import Path

import click

from headrace_cli.backend import with_api
from headrace_cli.jobs import json_option
from headrace_cli.render import print_json, print_table


@click.group()
def files() -> None:
    """Upload, list and delete datasets."""


@files.command()
@with_api
@click.argument(
    "paths", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False)
)
@json_option
def upload(api, paths: tuple[Path, ...], as_json: bool) -> None:
    """Upload chat JSONL files; a bad line is named, and nothing of its file is kept."""
    found = []
    for path in paths:
        found.append(api.upload_file(path))
        if not as_json:
            click.echo(f"{path}  {found[-1]['id']}")
    if as_json:
        print_json(found)


@files.command("list")
@with_api
@json_option
def list_files(api, as_json: bool) -> None:
    """List uploaded files, newest first."""
    found = api.list_files()
    if as_json:
        print_json(found)
        return
    rows = [[f["id"], f.get("filename"), f.get("n_rows"), f.get("bytes"), f.get("created_at")] for f in found]
    print_table(["file", "name", "rows", "bytes", "created"], rows)


@files.command()
@with_api
@click.argument("file_ids", nargs=-1, required=True)
@json_option
def delete(api, file_ids: tuple[str, ...], as_json: bool) -> None:
    """Delete uploaded files that no unfinished job reads."""
    found = []
    for file_id in file_ids:
        found.append(api.delete_file(file_id))
        if not as_json:
            click.echo(f"{file_id} deleted")
    if as_json:
        print_json(found)
