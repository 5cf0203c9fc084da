"""`headrace jobs ledger`: which planned rollout moved which step, and whether the sum is right."""

from __future__ import annotations

from typing import Any

import click

from headrace_cli.backend import with_api
from headrace_cli.errors import FAILED
from headrace_cli.options import example, json_option, jsonl_option, print_lines, refuse_both
from headrace_cli.render import print_json, print_table

NAMELESS = "no reason"
"""Where the API counts rollouts that were not trained on and do not say why."""


@click.command(epilog=example("headrace jobs ledger JOB", "headrace jobs ledger JOB --jsonl > ledger.jsonl"))
@with_api
@click.argument("job_id", metavar="JOB")
@json_option
@jsonl_option
@click.pass_context
def ledger(ctx: click.Context, api, job_id: str, as_json: bool, as_jsonl: bool) -> None:
    """Show which planned rollouts moved the weights, and why the others did not.

    With --jsonl a line per rollout: its step or the reason, its advantage, tokens and policy versions.
    Exits with 1 unless planned = trained + not trained for a named reason, which a running job
    reaches at its end.
    """
    refuse_both(json=as_json, jsonl=as_jsonl)
    found = api.ledger(job_id)
    summary: dict[str, Any] = found["summary"]
    missing = unaccounted(summary)
    if as_json:
        print_json(found)
    elif as_jsonl:
        print_lines(found["entries"])
    else:
        rows = [["planned", summary["planned"]], ["trained", summary["trained"]]]
        rows += [[f"not trained: {reason}", n] for reason, n in summary.get("not_trained", {}).items()]
        print_table(["rollouts", "n"], rows)
        if not missing:
            click.echo("every planned rollout is accounted for")
    if missing:
        click.echo(f"{missing} of {summary['planned']} planned rollouts are not accounted for", err=True)
        ctx.exit(FAILED)


def unaccounted(summary: dict[str, Any]) -> int:
    """How far planned is from trained plus named reasons; more rows than planned count as well.

    >>> unaccounted({"planned": 8, "trained": 5, "not_trained": {"zero variance": 2, "no reason": 1}})
    1
    """
    named = sum(n for reason, n in summary.get("not_trained", {}).items() if reason != NAMELESS)
    return abs(summary["planned"] - summary["trained"] - named)
