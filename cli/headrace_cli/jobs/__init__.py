"""`headrace jobs`: everything that can be asked of jobs, and done to them."""

from __future__ import annotations

import click

from headrace_cli.jobs import actions, ledger, listing, logs, numbers

__all__ = ["jobs"]


@click.group()
def jobs() -> None:
    """List, show, follow, cancel, resume and clone jobs; export what they leave behind."""


for _command in (
    listing.list_jobs, listing.show, logs.events, logs.logs, numbers.metrics, numbers.rewards, ledger.ledger,
    actions.follow, actions.cancel, actions.resume, actions.clone, actions.checkpoints,
):  # fmt: skip
    jobs.add_command(_command)
