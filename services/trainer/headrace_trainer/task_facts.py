"""Asking the task app what a job's config leaves open. Imports no torch."""

from __future__ import annotations

import httpx
from sqlmodel import Session, select

from headrace.contracts.task_app import TaskFacts, auth_headers, refusal
from headrace.errors import ConfigError, JobFailed
from headrace.queue.secrets import unseal
from headrace.settings import Settings
from headrace.store.tables import EnvironmentKey
from headrace_trainer.context import Context


def ask(context: Context, org_id: str, task_url: str) -> TaskFacts:
    """The task app's facts; raises JobFailed with one sentence when it does not give them."""
    with context.store.read() as session:
        keys = _environment_keys(session, org_id, context.settings)
    url = f"{task_url.rstrip('/')}/task_info"
    try:
        reply = httpx.get(url, headers=auth_headers(keys), timeout=15)
    except httpx.HTTPError as error:
        raise JobFailed(f"the task app does not answer at {url} ({error!r}); is it running?") from error
    if reply.status_code != 200:
        raise JobFailed(f"{url}: {refusal(reply.status_code, reply.text[:2000], keys)}")
    try:
        return TaskFacts.parse(reply.json())
    except ValueError as error:
        raise JobFailed(f"the task app answered {url} with something that is not JSON") from error


def training_seeds(
    configured: tuple[int, ...] | None, facts: TaskFacts, split: str | None
) -> tuple[int, ...]:
    """The seeds to train on: those of the config, else the task app's own range."""
    if configured is not None:
        return configured
    if facts.seed_range is None:
        where = f" of split {split!r}" if split else ""
        raise ConfigError(
            f"[training.rollouts] seeds is missing and the task app names no seed_range{where}; "
            "list the seeds or give {start, count}"
        )
    first, last = facts.seed_range
    return tuple(range(first, last + 1))


def _environment_keys(session: Session, org_id: str, settings: Settings) -> list[str]:
    rows = session.exec(select(EnvironmentKey).where(EnvironmentKey.org_id == org_id)).all()
    newest_first = sorted(rows, key=lambda row: row.updated_at, reverse=True)
    return [key for row in newest_first for key in unseal(settings.secret_key, row.ciphertext)]
