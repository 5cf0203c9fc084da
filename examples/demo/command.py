"""The command line of a demo: start a stack, run the stages, report, stop."""

from __future__ import annotations

import json
import signal
import time
from types import FrameType

import click
from rich.console import Console

from examples.demo import stack, stages, view
from examples.demo.recipe import Recipe
from headrace.artifacts.files import write_atomically
from headrace.client import ApiClient
from headrace.errors import HeadraceError


def make(recipe: Recipe) -> click.Command:
    """`python -m examples.<name>.demo`."""

    @click.command(help=f"{recipe.task}: SFT, evaluation, RL and evaluation again, on a stack of its own.")
    @click.option("--keep", is_flag=True, help="Leave the stack running at the end.")
    @click.option(
        "--seed", default=0, show_default=True, help="Of the base model, the demonstrations and all draws."
    )
    def command(keep: bool, seed: int) -> None:
        signal.signal(signal.SIGTERM, _as_interrupt)
        try:
            shortfalls = _run(recipe, Console(), keep, seed)
        except HeadraceError as error:
            raise click.ClickException(error.message) from error
        if shortfalls:
            raise click.ClickException("; ".join(shortfalls))

    return command


def _as_interrupt(signum: int, frame: FrameType | None) -> None:
    """SIGTERM unwinds like Ctrl-C, so that the children are stopped."""
    raise KeyboardInterrupt


def _run(recipe: Recipe, console: Console, keep: bool, seed: int) -> list[str]:
    home = stack.demo_home(recipe.home)
    started = time.monotonic()
    console.print(f"{recipe.name}: files and logs under {home}", highlight=False, soft_wrap=True)
    home.mkdir(parents=True, exist_ok=True)
    stages.prepare(recipe, home, seed)
    prepared = time.monotonic()
    with (
        stack.running(home, recipe.app, keep=keep) as running,
        ApiClient(running.api_url, running.api_key) as api,
    ):
        ready = time.monotonic()
        console.print(f"stack ready; dashboard: {running.dashboard_url}", highlight=False, soft_wrap=True)
        seconds = {"prepare": prepared - started, "stack": ready - prepared}
        story = stages.Stages(recipe, running, api, console, seed, seconds)
        figures, facts = story.run()
        seconds["total"] = time.monotonic() - started
        summary = home / "demo" / "summary.json"
        write_atomically(summary, (json.dumps(figures.to_json(), indent=2) + "\n").encode())
        view.closing(console, figures, {**facts, "summary": str(summary)})
        if keep:
            console.print("the stack keeps running; stop it with SIGTERM to the pid in its state.json")
    return figures.shortfalls()
