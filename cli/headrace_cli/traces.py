"""`headrace traces`: the recorded episodes of a job."""

from __future__ import annotations

import json
from typing import Any

import click

from headrace_cli.backend import with_api
from headrace_cli.options import example, json_option, jsonl_option, print_lines, refuse_both
from headrace_cli.render import number, print_json, print_table, printable


@click.group()
def traces() -> None:
    """List and show recorded episodes."""


@traces.command(
    "list",
    epilog=example(
        "headrace traces list JOB --iteration 3", "headrace traces list JOB --jsonl > rollouts.jsonl"
    ),
)
@with_api
@click.argument("job_id", metavar="JOB")
@click.option("--purpose", type=click.Choice(["train", "eval"]), help="Only rollouts made for this.")
@click.option("--iteration", type=click.IntRange(0), help="Only this iteration.")
@click.option("--status", help="Only rollouts of this status, such as scored or infra_failed.")
@click.option(
    "--limit", type=click.IntRange(1, 5000), default=100, show_default=True, help="Most rollouts shown."
)
@click.option("--offset", type=click.IntRange(0), default=0, show_default=True, help="Rollouts to skip.")
@json_option
@jsonl_option
def list_traces(api, job_id: str, as_json: bool, as_jsonl: bool, **chosen: Any) -> None:
    """List a job's rollouts by iteration, group and member."""
    refuse_both(json=as_json, jsonl=as_jsonl)
    if as_jsonl:
        filters = {name: chosen[name] for name in ("purpose", "iteration", "status")}
        print_lines(api.export_rollouts(job_id, **filters))
        return
    page = api.rollouts(job_id, **chosen)
    if as_json:
        print_json(page)
        return
    rows = [
        [
            r["rollout_id"],
            r["status"],
            r.get("seed"),
            r.get("outcome_reward"),
            r.get("n_turns"),
            r.get("reason"),
        ]
        for r in page["rollouts"]
    ]
    print_table(["rollout", "status", "seed", "reward", "turns", "reason"], rows)
    if page["total"] > chosen["offset"] + len(rows):
        click.echo(
            f"{len(rows)} of {page['total']}; more with --offset {chosen['offset'] + len(rows)}", err=True
        )


@traces.command(epilog=example("headrace traces show ROLLOUT --tokens"))
@with_api
@click.argument("rollout_id", metavar="ROLLOUT")
@click.option("--tokens", is_flag=True, help="Each sampled token with its logprob and policy version.")
@json_option
def show(api, rollout_id: str, tokens: bool, as_json: bool) -> None:
    """Show one episode: what the policy saw, what it said, what it got."""
    found = api.rollout(rollout_id)
    if as_json:
        print_json(found)
        return
    rollout, trajectory = found["rollout"], found.get("trajectory")
    reward = number(rollout.get("outcome_reward"))
    click.echo(f"{rollout_id}  {rollout['status']}  seed {rollout.get('seed')}  reward {reward}")
    if rollout.get("reason"):
        click.echo(printable(rollout["reason"]))
    if trajectory is None:
        click.echo("no trace is recorded (yet)")
        return
    shown: list[dict[str, Any]] = []
    for call in trajectory["calls"]:
        messages = call.get("messages") or call.get("new_messages") or []
        for message in messages[_common_prefix(shown, messages) :]:
            _print_message(message)
        if reply := call.get("reply"):
            _print_message(reply)
        if error := call.get("error"):
            click.echo(printable(f"call {call['index']} failed: {error.get('message')}"))
        shown = [*messages, *([reply] if reply else [])]
        if tokens:
            _print_tokens(call.get("tokens") or [])
    for event in found.get("event_rewards", []):
        click.echo(printable(f"turn {event['turn']}: {event['key']} {number(event['value'])}"))


def _common_prefix(shown: list[dict[str, Any]], messages: list[dict[str, Any]]) -> int:
    n = 0
    while n < min(len(shown), len(messages)) and _same(shown[n], messages[n]):
        n += 1
    return n


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return (one.get("role"), one.get("content")) == (other.get("role"), other.get("content"))


def _print_message(message: dict[str, Any]) -> None:
    click.echo(click.style(f"{message.get('role', '?')}:", bold=True))
    content = message.get("content")
    if content:
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        for line in text.splitlines():
            click.echo(f"  {printable(line)}")
    for call in message.get("tool_calls") or []:
        function = call.get("function", {})
        click.echo(printable(f"  {function.get('name')}({function.get('arguments')})"))


def _print_tokens(tokens: list[dict[str, Any]]) -> None:
    rows = [[repr(t.get("text", "")), t["id"], f"{t['logprob']:.4f}", t.get("version")] for t in tokens]
    print_table(["token", "id", "logprob", "version"], rows)
