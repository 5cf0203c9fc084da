"""Follow a job to its end: poll, show, and say how it ended with an exit code."""

from __future__ import annotations

import os
import sys
import time
from contextlib import AbstractContextManager
from typing import Any, Protocol, Self

import click

from headrace.client import ApiClient
from headrace.contracts.job import JobStatus
from headrace.errors import JobFailed, Unavailable
from headrace_cli.errors import Interrupted, TimedOut
from headrace_cli.progress import Progress, plain_line
from headrace_cli.render import clock, printable

Json = dict[str, Any]
QUIET_S = 30.0
"""Without a terminal, an unchanged job is said again after so many seconds."""


class View(AbstractContextManager, Protocol):
    """Shows a job's progress."""

    def __enter__(self) -> Self: ...

    def update(self, progress: Progress, elapsed_s: float) -> None: ...

    def note(self, text: str) -> None: ...


class LineView:
    """A line whenever something has changed, and one now and then when nothing has."""

    def __init__(self, to_stderr: bool = False) -> None:
        self._err = to_stderr
        self._said = ""
        self._said_at = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def update(self, progress: Progress, elapsed_s: float) -> None:
        line = plain_line(progress, "")
        if line != self._said or elapsed_s - self._said_at >= QUIET_S:
            self._said, self._said_at = line, elapsed_s
            self._echo(plain_line(progress, clock(elapsed_s)))

    def note(self, text: str) -> None:
        self._echo(text)

    def _echo(self, text: str) -> None:
        click.echo(printable(text), err=self._err)
        (sys.stderr if self._err else sys.stdout).flush()


def view_for(as_json: bool) -> View:
    """The live view on a terminal that can draw, lines elsewhere; with `--json` lines on stderr."""
    is_plain = not sys.stdout.isatty() or os.environ.get("TERM", "dumb") in ("dumb", "unknown")
    if as_json or is_plain:
        return LineView(to_stderr=as_json)
    from headrace_cli.live import LiveView

    return LiveView()


def follow(api: ApiClient, job: Json, view: View, *, timeout_s: float, interval_s: float) -> Json:
    """Poll until the job is terminal and return it.

    Raises TimedOut after `timeout_s`, Interrupted on Ctrl-C; the job goes on in both cases. An API that
    does not answer is asked again until then.
    """
    progress, began = Progress(job), time.monotonic()
    hint = follow_hint(progress.job_id)
    try:
        with view:
            while True:
                elapsed = time.monotonic() - began
                try:
                    progress.refresh(api)
                except Unavailable as error:
                    view.note(f"{error.message}; asking again")
                else:
                    view.update(progress, elapsed)
                    if JobStatus(progress.job["status"]).is_terminal:
                        return progress.job
                if elapsed >= timeout_s:
                    raise TimedOut(
                        f"job {progress.job_id} is still {progress.job['status']} after {timeout_s:g} s; {hint}"
                    )
                time.sleep(min(interval_s, max(0.05, timeout_s - elapsed)))
    except KeyboardInterrupt:
        raise Interrupted(f"stopped watching; job {progress.job_id} goes on: {hint}") from None


def require_success(job: Json) -> None:
    """Raise JobFailed with the job's reason unless it has succeeded."""
    status = job["status"]
    if status == JobStatus.SUCCEEDED:
        return
    if status == JobStatus.CANCELLED:
        raise JobFailed(f"job {job['job_id']} was cancelled")
    error = job.get("error")
    reason = error.get("message", error) if isinstance(error, dict) else error
    raise JobFailed(printable(f"job {job['job_id']} failed: {reason or 'no reason was recorded'}"))


def follow_hint(job_id: str) -> str:
    """How a job that goes on is followed and ended."""
    return f"follow it with `headrace jobs follow {job_id}`, end it with `headrace jobs cancel {job_id}`"
