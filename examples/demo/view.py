"""What a person sees: a live curve on a terminal, plain lines elsewhere, and the closing table."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from examples.demo import curve
from examples.demo.jobs import Job, Point
from examples.demo.summary import Figures

LINE_EVERY = {"sft": 25, "rl": 5}
"""Off a terminal: a line for every so many steps."""


class Progress:
    """Shows the jobs of one stage while they run; use as a context and as `wait`'s callback."""

    def __init__(self, console: Console, title: str) -> None:
        self._console, self._title = console, title
        self._started = time.monotonic()
        self._rewards: list[float] = []
        self._latest: dict[str, float] = {}
        self._step = 0
        self._status: dict[str, str] = {}
        self._live = (
            Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None
        )

    def __enter__(self) -> Progress:
        if self._live:
            self._live.start()
        else:
            self._console.print(f"== {self._title}")
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()
        for line in curve.draw(self._rewards) if self._rewards else []:
            self._console.print(line, markup=False, highlight=False)
        self._console.print(f"{self._title}: {time.monotonic() - self._started:.0f} s", highlight=False)

    def __call__(self, points: list[Point], job: Job) -> None:
        self._tell_status(job)
        for step in sorted({point["step"] for point in points}):
            named = {point["name"]: point["value"] for point in points if point["step"] == step}
            self._latest.update(named)
            self._step = step
            if "reward.mean" in named:
                self._rewards.append(named["reward.mean"])
            if not self._live and _is_told(job["type"], step):
                self._console.print(f"{job['type']} step {step}: {_told(named)}", highlight=False)
        if self._live:
            self._live.update(self._panel())

    def _tell_status(self, job: Job) -> None:
        reason = job.get("waiting_reason") or job.get("paused_reason")
        status = f"{job['status']} ({reason})" if reason else job["status"]
        if self._status.get(job["job_id"]) != status and not self._live:
            self._console.print(f"{job['type']} {job['job_id']}: {status}", highlight=False)
        self._status[job["job_id"]] = status

    def _panel(self) -> Panel:
        lines = [Text(f"{job_id}  {status}") for job_id, status in self._status.items()]
        if self._rewards:
            lines += [Text(line, style="green") for line in curve.draw(self._rewards)]
        if self._latest:
            lines.append(Text(f"step {self._step}: {_told(self._latest)}"))
        lines.append(Text(f"{time.monotonic() - self._started:.0f} s", style="dim"))
        return Panel(Group(*lines), title=self._title, title_align="left")


def _is_told(job_type: str, step: int) -> bool:
    every = LINE_EVERY.get(job_type)
    return every is not None and (step == 1 or step % every == 0)


def _told(named: dict[str, float]) -> str:
    wanted = ("reward.mean", "success.rate", "train.loss", "val.loss", "train.entropy", "eval.success")
    return "  ".join(f"{name} {named[name]:.3f}" for name in wanted if name in named)


def closing(console: Console, figures: Figures, facts: dict[str, str]) -> None:
    """The table, the controls, where things are, and the sentence."""
    table = Table(title=f"Held out, n = {figures.trained['n']} sampled episodes each")
    for name in ("", "before RL", "after RL", "difference [95 %]"):
        table.add_column(name, justify="left" if not name else "right")
    row = table.add_row
    row("sampled success", *_pair(figures.baseline, figures.trained, "success"), str(figures.gain))
    row(
        "greedy success",
        *_pair(figures.baseline_greedy, figures.trained_greedy, "success"),
        _difference(figures),
    )
    row("mean return", *_pair(figures.baseline, figures.trained, "mean_return"), "")
    row("blind control", "", f"{figures.blind['success']:.3f}", f"{figures.blind_gap} to seeing")
    for name, success in figures.controls.items():
        row(name, "", f"{success:.3f}", "")
    console.print(table)
    for name, fact in facts.items():
        console.print(f"{name:<11} {fact}", markup=False, highlight=False, soft_wrap=True)
    console.print(figures.learned(), highlight=False, style="bold")


def _pair(before: dict[str, Any], after: dict[str, Any], key: str) -> tuple[str, str]:
    return f"{before[key]:.3f}", f"{after[key]:.3f}"


def _difference(figures: Figures) -> str:
    return f"{figures.trained_greedy['success'] - figures.baseline_greedy['success']:+.3f}"


def before_and_after(console: Console, seed: int, before: str, after: str) -> None:
    """One episode on the same held-out task, before and after training."""
    table = Table(title=f"One held-out episode (seed {seed})")
    table.add_column("before RL")
    table.add_column("after RL")
    table.add_row(Text(before), Text(after))
    console.print(table)
