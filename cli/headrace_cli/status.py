"""`headrace status`: the local stack as its supervisor sees it, checked against what really lives."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path

import click

from headrace_cli.errors import FAILED
from headrace_cli.options import example
from headrace_cli.render import print_json, print_table
from headrace_cli.stack.state import ProcessState


@click.command(epilog=example("headrace status --json"))
@click.option(
    "--home",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="HEADRACE_HOME",
    help="Home folder of the stack.  [default: ~/.headrace]",
)
@click.option("--json", "as_json", is_flag=True, help="Addresses, pids and states as one JSON object.")
@click.pass_context
def status(ctx: click.Context, home: Path | None, as_json: bool) -> None:  # fmt: skip
    """Show the local stack: addresses, pids and states.

    Exits with 1 unless every process is ready.
    """
    from headrace.settings import Settings
    from headrace_cli.stack.state import is_held, read_state

    folder = (home or Settings().home).expanduser().resolve()
    kept, running = read_state(folder), is_held(folder)
    if kept is None or not running:
        if as_json:
            print_json({"running": False, "home": str(folder), "addresses": {}, "processes": []})
        else:
            click.echo(f"no stack runs on {folder}; start one with `headrace up`")
        ctx.exit(FAILED)
    with ThreadPoolExecutor(len(kept.processes) or 1) as pool:
        processes = list(pool.map(_as_it_is, kept.processes))
    is_ready = all(process.state == "ready" for process in processes)
    if as_json:
        print_json({"running": True, "ready": is_ready, **asdict(replace(kept, processes=tuple(processes)))})
    else:
        rows = [[p.name, p.state, p.pid or "-", p.restarts, p.url or "-", p.reason] for p in processes]
        print_table(["process", "state", "pid", "restarts", "address", ""], rows)
    if not is_ready:
        ctx.exit(FAILED)


def _as_it_is(process: ProcessState) -> ProcessState:
    """The recorded state, corrected by whether the pid lives and the address answers now."""
    import psutil

    from headrace_cli.stack.probes import HttpProbe

    if process.state not in ("ready", "unready", "starting") or process.pid is None:
        return process
    if not psutil.pid_exists(process.pid):
        return replace(process, state="dead", reason="its process is gone")
    if process.health is None:
        return process
    reason = HttpProbe(process.health)(process.pid)
    if reason is None:
        return replace(process, state="ready", reason="")
    return replace(process, state="unready" if process.state == "ready" else process.state, reason=reason)
