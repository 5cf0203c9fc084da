"""`headrace up`: the whole stack on this machine, as children of one supervisor."""

from __future__ import annotations

import os
from pathlib import Path

import click

from headrace_cli.options import example
from headrace_cli.stack.ports import DEFAULT_BASE, OFFSETS


def _port_options(command):
    for name, offset in reversed(OFFSETS.items()):
        command = click.option(
            f"--{name}-port",
            type=click.IntRange(1, 65535),
            envvar=f"HEADRACE_{name.upper()}_PORT",
            help=f"Port of {name}.  [default: base port + {offset}]",
        )(command)
    return command


@click.command(epilog=example("headrace up", "headrace up --home /data/headrace --base-port 9000"))
@click.option(
    "--home",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="HEADRACE_HOME",
    help="Folder for the database, the queue's data, artifacts, logs and keys.  [default: ~/.headrace]",
)
@click.option(
    "--base-port",
    type=click.IntRange(1, 65500),
    default=DEFAULT_BASE,
    show_default=True,
    envvar="HEADRACE_BASE_PORT",
    help="First of six ports in a row, all on loopback.",
)
@_port_options
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Rollout worker processes (64 rollouts at once each).",
)
@click.option("--no-flower", is_flag=True, help="Leave out Flower.")
@click.option("--no-dashboard", is_flag=True, help="Leave out the dashboard.")
@click.option(
    "--ready-timeout",
    type=click.FloatRange(min=1),
    default=120.0,
    show_default=True,
    help="Seconds within which all processes together must be ready.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line for each event.")
def up(
    home: Path | None,
    base_port: int,
    workers: int,
    no_flower: bool,
    no_dashboard: bool,
    ready_timeout: float,
    as_json: bool,
    **ports: int | None,
) -> None:  # fmt: skip
    """Start the whole stack on this machine; Ctrl-C stops it.

    Runs the API, recorder, policy, rollout workers, trainer, evaluator, dashboard and Flower, with an
    embedded Valkey unless REDIS_URL is set and SQLite unless DATABASE_URL is set. Everything listens
    on loopback. A process that dies is started again; each has its log under HOME/logs.
    """
    from headrace.settings import Settings
    from headrace_cli.stack import assemble, secrets, state
    from headrace_cli.stack.announce import announcer
    from headrace_cli.stack.ports import Ports, require_free
    from headrace_cli.stack.supervisor import Pace, Supervisor

    folder = (home or Settings().home).expanduser().resolve()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    given = {name: ports[f"{name}_port"] for name in OFFSETS}
    with state.held(folder):
        plan = assemble.Plan(
            home=folder,
            ports=Ports.derive(base_port, given),
            secrets=secrets.load_or_create(folder, os.environ),
            environ=dict(os.environ),
            n_workers=workers,
            with_flower=not no_flower,
            with_dashboard=not no_dashboard,
        )
        require_free(plan.wanted_ports, patience_s=3.0)
        _require_outside_redis(plan)
        announce = announcer(as_json)
        pace = Pace(ready_within=ready_timeout)
        Supervisor(assemble.processes(plan), folder, announce, plan.addresses, pace).run()


def _require_outside_redis(plan) -> None:
    from headrace.errors import Unavailable
    from headrace_cli.stack.assemble import without_password
    from headrace_cli.stack.probes import RedisProbe

    if plan.embeds_valkey:
        return
    if (reason := RedisProbe(plan.redis_url)(0)) is not None:
        raise Unavailable(
            f"REDIS_URL = {without_password(plan.redis_url)} does not answer ({reason}); "
            "start it, or unset REDIS_URL to use the embedded Valkey"
        )
