"""`headrace files`: datasets at the API."""

from __future__ import annotations

from pathlib import Path

import click

from headrace.errors import Conflict
from headrace_cli.backend import with_api
from headrace_cli.options import example, json_option
from headrace_cli.render import print_json, print_report, print_table


@click.group()
def files() -> None:
    """Upload, list, show, download and delete datasets."""


@files.command(epilog=example("headrace files upload train.jsonl"))
@with_api
@click.argument(
    "paths", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False)
)  # fmt: skip
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


@files.command("list", epilog=example("headrace files list"))
@with_api
@click.option("--after", metavar="FILE_ID", help="Only files behind this one: the next page of the list.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="Most files shown."
)
@json_option
def list_files(api, after: str | None, limit: int, as_json: bool) -> None:
    """List uploaded files, newest first."""
    page = api.files_page(after=after, limit=limit)
    found = page["files"]
    if as_json:
        print_json(found)
    else:
        keys = ("id", "filename", "n_rows", "bytes", "created_at")
        print_table(["file", "name", "rows", "bytes", "created"], [[f.get(k) for k in keys] for f in found])
    if page.get("has_more") and found:
        click.echo(f"there are more: --after {found[-1]['id']}", err=True)


@files.command(epilog=example("headrace files show FILE_ID"))
@with_api
@click.argument("file_id", metavar="FILE_ID")
@json_option
def show(api, file_id: str, as_json: bool) -> None:
    """Show one file: its name, size, number of conversations and hash."""
    found = api.get_file(file_id)
    if as_json:
        print_json(found)
    else:
        print_report({name: value for name, value in found.items() if name != "file_id"})


@files.command(epilog=example("headrace files download FILE_ID --output copy.jsonl"))
@with_api
@click.argument("file_id", metavar="FILE_ID")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
              help="Where to write it; `-` is stdout.  [default: its own name, here]")  # fmt: skip
def download(api, file_id: str, output: Path | None) -> None:
    """Write a file's content to disk. A file that exists is not overwritten."""
    if output == Path("-"):
        for piece in api.download_file(file_id):
            click.echo(piece, nl=False)
        return
    # its stored name came from whoever uploaded it: no folders of theirs
    target = output or Path(Path(api.get_file(file_id)["filename"]).name or file_id)
    _write(target, api.download_file(file_id))
    click.echo(f"{file_id}  {target}")


def _write(target: Path, pieces) -> None:
    """All of it or nothing; raises Conflict where the file exists."""
    if target.exists():
        raise Conflict(f"{target} exists already; give another --output")
    part = target.with_name(f".{target.name}.part")
    try:
        with part.open("wb") as file:
            for piece in pieces:
                file.write(piece)
        part.rename(target)
    finally:
        part.unlink(missing_ok=True)


@files.command(epilog=example("headrace files delete FILE_ID"))
@with_api
@click.argument("file_ids", metavar="FILE_ID...", nargs=-1, required=True)
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
