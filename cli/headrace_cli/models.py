"""`headrace models` and `headrace checkpoints`: what training has produced."""

from __future__ import annotations

import click

from headrace_cli.backend import with_api
from headrace_cli.jobs import actions
from headrace_cli.options import example, json_option
from headrace_cli.render import print_json, print_report, print_table


@click.group()
def models() -> None:
    """List and show models."""


@models.command("list", epilog=example("headrace models list"))
@with_api
@json_option
def list_models(api, as_json: bool) -> None:
    """List the models that jobs ended with, newest first, then the aliases of base models."""
    found = api.models()
    if as_json:
        print_json(found)
        return
    rows = [[m["id"], m.get("base_model"), m.get("job_id"), m.get("created_at")] for m in found]
    print_table(["model", "base", "job", "created"], rows)


@models.command(epilog=example("headrace models show ft:Qwen/Qwen3-0.6B:job_0123456789abcdef"))
@with_api
@click.argument("model_id", metavar="MODEL")
@json_option
def show(api, model_id: str, as_json: bool) -> None:
    """Show one model: what it was trained from, and by which job."""
    found = api.get_model(model_id)
    if as_json:
        print_json(found)
    else:
        print_report({name: value for name, value in found.items() if value is not None})


@click.group()
def checkpoints() -> None:
    """List a job's checkpoints."""


checkpoints.add_command(actions.checkpoints, "list")
