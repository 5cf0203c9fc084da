"""`headrace keys`: keys of the API, and the task app's key at the API."""

from __future__ import annotations

import os
from pathlib import Path

import click

from headrace.errors import ConfigError
from headrace_cli.backend import backend_options, connect, with_api
from headrace_cli.options import example, json_option
from headrace_cli.render import print_json, print_table


@click.group()
def keys() -> None:
    """Make, list and revoke API keys; upload, list and delete the task apps' keys."""


@keys.command(epilog=example("headrace keys create ci"))
@with_api
@click.argument("name", metavar="NAME")
@json_option
def create(api, name: str, as_json: bool) -> None:
    """Make an API key; it is shown this once."""
    made = api.create_key(name)
    if as_json:
        print_json(made)
    else:
        click.echo(made["key"])
        click.echo("keep it: it is not shown again", err=True)


@keys.command("list", epilog=example("headrace keys list"))
@with_api
@json_option
def list_keys(api, as_json: bool) -> None:
    """List API keys by their prefix."""
    found = api.list_keys()
    if as_json:
        print_json(found)
        return
    rows = [
        [k["key_id"], k.get("name"), k.get("prefix"), k.get("created_at"), k.get("revoked_at")] for k in found
    ]
    print_table(["key", "name", "prefix", "created", "revoked"], rows)


@keys.command(epilog=example("headrace keys revoke KEY_ID"))
@with_api
@click.argument("key_id", metavar="KEY_ID")
@json_option
def revoke(api, key_id: str, as_json: bool) -> None:
    """Revoke an API key at once."""
    answer = api.revoke_key(key_id)
    if as_json:
        print_json(answer)
    else:
        click.echo(f"{key_id} revoked")


@keys.command("upload-env", epilog=example("headrace keys upload-env --env-file .env"))
@backend_options
@json_option
def upload_env(backend: str | None, env_file: tuple[Path, ...], as_json: bool) -> None:
    """Upload ENVIRONMENT_API_KEY (from the shell or an --env-file), sealed for the API before it leaves."""
    from headrace_cli.envfiles import environment_keys, merged
    from headrace_cli.keyring import upload_environment_keys

    environ = merged(env_file, os.environ)
    held = environment_keys(environ)
    if not held:
        raise ConfigError("ENVIRONMENT_API_KEY is not set; set it in the shell or in an --env-file")
    with connect(backend, environ) as api:
        answers = upload_environment_keys(api, held)
    if as_json:
        print_json(answers)
    else:
        click.echo(f"uploaded {len(answers)} key{'s' if len(answers) > 1 else ''}")


@keys.command("list-env", epilog=example("headrace keys list-env"))
@with_api
@json_option
def list_env(api, as_json: bool) -> None:
    """List the task apps' keys that the API holds, by their prefix; all of them are tried on a task app."""
    found = api.list_environment_keys()
    if as_json:
        print_json(found)
        return
    rows = [[k["id"], k.get("name"), k.get("prefix"), k.get("updated_at")] for k in found]
    print_table(["key", "name", "prefix", "updated"], rows)


@keys.command("delete-env", epilog=example("headrace keys delete-env ENV_KEY_ID"))
@with_api
@click.argument("key_id", metavar="ENV_KEY_ID")
@json_option
def delete_env(api, key_id: str, as_json: bool) -> None:
    """Delete a task app's key at the API, once the app no longer takes it."""
    answer = api.delete_environment_key(key_id)
    if as_json:
        print_json(answer)
    else:
        click.echo(f"{key_id} deleted")
