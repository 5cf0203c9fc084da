"""`headrace jobs events` and `logs`: what a job said, as a page, an export or a stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import click

from headrace_cli.backend import with_api
from headrace_cli.options import example, json_option, jsonl_option, print_line, print_lines, refuse_both
from headrace_cli.render import print_json, print_table, printable

Json = dict[str, Any]
LEVELS = ("debug", "info", "warning", "error")
PAGE = 1000

follow_option = click.option("-f", "--follow", is_flag=True, help="Go on until the job ends.")
since_option = click.option(
    "--since",
    type=click.IntRange(0),
    default=0,
    metavar="SEQ",
    help="Only events after this sequence number.",
)


@click.command(epilog=example("headrace jobs events JOB --follow", "headrace jobs events JOB --jsonl"))
@with_api
@click.argument("job_id", metavar="JOB")
@since_option
@click.option("--limit", type=click.IntRange(1, 5000), default=200, show_default=True,
              help="Most events shown, unless they are followed or exported.")  # fmt: skip
@follow_option
@json_option
@jsonl_option
def events(
    api, job_id: str, since: int, limit: int, follow: bool, as_json: bool, as_jsonl: bool
) -> None:  # fmt: skip
    """Show a job's events, oldest first. A followed stream that is cut goes on behind the last event."""
    refuse_both(json=as_json, jsonl=as_jsonl)
    refuse_both(json=as_json, follow=follow)
    if follow:
        for event in _followed(api, job_id, since):
            print_line(event) if as_jsonl else _echo(_line_of(event))
    elif as_jsonl:
        print_lines(api.export_events(job_id, since))
    elif as_json:
        print_json(api.events(job_id, since_seq=since, limit=limit))
    else:
        found = api.events(job_id, since_seq=since, limit=limit)
        rows = [[e["seq"], e.get("created_at"), e.get("level"), e["type"], e.get("message")] for e in found]
        print_table(["seq", "at", "level", "type", "message"], rows)


@dataclass(frozen=True)
class LogLine:
    """One thing that happened: an event of the job, or an attempt at a rollout that failed."""

    at: str
    level: str
    type: str
    message: str

    def __str__(self) -> str:
        return f"{self.at}  {self.level:7}  {self.type}  {self.message}"


@click.command(epilog=example("headrace jobs logs JOB", "headrace jobs logs JOB -f --level warning"))
@with_api
@click.argument("job_id", metavar="JOB")
@click.option("--level", type=click.Choice(LEVELS), default="info", show_default=True,
              help="Only what is at least of this level; a failed attempt is a warning.")  # fmt: skip
@follow_option
@jsonl_option
def logs(api, job_id: str, level: str, follow: bool, as_jsonl: bool) -> None:
    """Show a job's events and the failed attempts at its rollouts, in the order of time."""
    lines = _followed_lines(api, job_id) if follow else _lines_so_far(api, job_id)
    for line in lines:
        if _rank(line.level) >= _rank(level):
            print_line(asdict(line)) if as_jsonl else _echo(str(line))


def _followed(api, job_id: str, since: int) -> Iterator[Json]:
    from headrace.client.following import resumed

    def told(error: Exception) -> None:
        click.echo(f"{error}; going on when it does", err=True)

    return resumed(api, job_id, since, told)


def _lines_so_far(api, job_id: str) -> Iterable[LogLine]:
    lines, seq = [], 0
    while page := api.events(job_id, since_seq=seq, limit=PAGE):
        lines += [_of_event(event) for event in page]
        seq = page[-1]["seq"]
    lines += [_of_attempt(attempt) for attempt in _attempts_after(api, job_id, None)]
    return sorted(lines, key=lambda line: line.at)


def _followed_lines(api, job_id: str) -> Iterator[LogLine]:
    """Events as they come (a heartbeat at least every few seconds); behind each, the attempts that have
    failed since the one before."""
    last = None
    for event in _followed(api, job_id, 0):
        yield _of_event(event)
        for attempt in _attempts_after(api, job_id, last):
            last = attempt["session_id"]
            yield _of_attempt(attempt)


def _attempts_after(api, job_id: str, last: str | None) -> Iterator[Json]:
    while page := api.failed_attempts(job_id, after=last):
        yield from page
        last = page[-1]["session_id"]


def _of_event(event: Json) -> LogLine:
    return LogLine(
        event.get("created_at") or "", event.get("level") or "info", event["type"], event.get("message") or ""
    )


def _of_attempt(attempt: Json) -> LogLine:
    where = f" at {attempt['boundary']}" if attempt.get("boundary") else ""
    message = (
        f"rollout {attempt['rollout_id']}, attempt {attempt['attempt']}: {attempt['outcome']}{where}: "
        f"{attempt.get('reason') or 'no reason was recorded'}"
    )
    return LogLine(attempt["finished_at"], "warning", "attempt.failed", message)


def _line_of(event: Json) -> str:
    return f"{event['seq']:>6}  {_of_event(event)}"


def _rank(level: str) -> int:
    return LEVELS.index(level) if level in LEVELS else LEVELS.index("info")


def _echo(text: str) -> None:
    click.echo(printable(text))
