"""The live view of a job on a terminal: progress, reward curve, last events."""

from __future__ import annotations

from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from headrace_cli.progress import Progress, plain_line
from headrace_cli.render import clock, printable, sparkline

SHOWN_EVENTS = 6
_STYLES = {"running": "cyan", "succeeded": "green", "failed": "red", "cancelled": "yellow"}


class LiveView:
    """Redraws in place, below a line for each change of status; what it showed last stays when it ends."""

    def __init__(self, console: Console | None = None) -> None:
        self._live = Live(console=console or Console(), refresh_per_second=4)
        self._status = ""

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._live.__exit__(None, None, None)

    def update(self, progress: Progress, elapsed_s: float) -> None:
        if progress.job["status"] != self._status:
            self._status = progress.job["status"]
            self._live.console.print(Text(printable(plain_line(progress, clock(elapsed_s)))))
        self._live.update(picture(progress, elapsed_s))

    def note(self, text: str) -> None:
        self._live.console.print(Text(printable(text), style="yellow"))


def picture(progress: Progress, elapsed_s: float) -> RenderableType:
    """What is drawn for the job as it is known now."""
    rows: list[RenderableType] = [_headline(progress, elapsed_s)]
    job = progress.job
    if total := job.get("iterations"):
        bar = Table.grid(padding=(0, 1))
        done = min(job.get("iteration") or 0, total)
        bar.add_row(ProgressBar(total=total, completed=done, width=40), Text(f"{done}/{total}"))
        rows.append(bar)
    if name := progress.curve_name:
        values = progress.curve(name)
        rows.append(
            Text.assemble((f"{name} ", "bold"), (sparkline(values, 60), "green"), f" {values[-1]:.4g}")
        )
    for event in progress.events[-SHOWN_EVENTS:]:
        style = "red" if event.get("level") == "error" else "dim"
        rows.append(Text(printable(f"  {event['type']}  {event.get('message') or ''}"), style, no_wrap=True))
    return Group(*rows)


def _headline(progress: Progress, elapsed_s: float) -> Text:
    job = progress.job
    values = "  ".join(f"{word} {value:.4g}" for word, value in progress.latest().items())
    line = Text.assemble(
        (f"{clock(elapsed_s)}  ", "dim"),
        (f"{job['job_id']}  ", "bold"),
        (f"{job['status']}  ", _STYLES.get(job["status"], "white")),
        values,
    )
    if why := job.get("paused_reason") or job.get("waiting_reason"):
        line.append(printable(f"  ({why})"), style="yellow")
    return line
