"""`headrace models` and `headrace checkpoints`: what training has produced."""

from __future__ import annotations

import click

from headrace_cli.backend import with_api
from headrace_cli.jobs import json_option
from headrace_cli.render import print_json, print_table


@click.group()
def models() -> None:
    """List models."""


@models.command("list")
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


@click.group()
def checkpoints() -> None:
    """List a job's checkpoints."""


@checkpoints.command("list")
@with_api
@click.argument("job_id")
@json_option
def list_checkpoints(api, job_id: str, as_json: bool) -> None:
    """List a job's checkpoints, newest first."""
    found = api.checkpoints(job_id)
    if as_json:
        print_json(found)
        return
    rows = [
        [c.get("checkpoint_id"), c.get("iteration"), c.get("step"), c.get("created_at"), c.get("path")]
        for c in found
    ]
    print_table(["checkpoint", "iteration", "step", "created", "path"], rows)
