"""Asking the task app what a job's config leaves open. Imports no torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import httpx
from sqlmodel import Session, select

from headrace.contracts.task_app import TaskFacts, refusal, unsuitable
from headrace.errors import ConfigError, JobFailed
from headrace.queue.secrets import unseal
from headrace.settings import Settings
from headrace.store.tables import EnvironmentKey
from headrace.task_app.client import BadAnswer
from headrace.task_app.client import ask as ask_app
from headrace_trainer.context import Context
from headrace_trainer.ownership import OwnedJob

ASK_S = 15.0
MAX_BYTES = 4 * 1024 * 1024
MAX_SEEDS = 10_000_000
ASK_AGAIN_S = 2.0
RESUME_PATIENCE_S = 120.0


def ask_for(job: OwnedJob, task_url: str) -> TaskFacts:
    """The facts that a claimed job needs at its start."""
    # What brought the trainer down may have brought down the task app, too.
    patience_s = RESUME_PATIENCE_S if job.timeline > 1 else 0.0
    return ask(job.context, job.org_id, task_url, patience_s=patience_s, tick=job.check)


def ask(
    context: Context,
    org_id: str,
    task_url: str,
    *,
    patience_s: float = 0.0,
    tick: Callable[[], None] = lambda: None,
) -> TaskFacts:
    """The task app's facts; raises JobFailed with one sentence when it does not give them.

    One that cannot be reached is asked again for `patience_s`; `tick` is called before each time.
    """
    with context.store.read() as session:
        keys = _environment_keys(session, org_id, context.settings)
    url = f"{task_url.rstrip('/')}/task_info"
    deadline = time.monotonic() + patience_s
    while True:
        tick()
        try:
            return TaskFacts.parse(_get(url, keys))
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            if time.monotonic() + ASK_AGAIN_S > deadline:
                raise JobFailed(
                    f"the task app does not answer at {url} ({error!r}); is it running?"
                ) from error
        time.sleep(ASK_AGAIN_S)


def _get(url: str, keys: list[str]) -> Any:
    """The answer's JSON; raises JobFailed where it is none."""
    try:
        with httpx.Client() as client:
            answer = ask_app(client, "GET", url, keys, timeout_s=ASK_S, max_bytes=MAX_BYTES)
    except BadAnswer as error:
        raise JobFailed(error.message) from error
    if answer.status != 200:
        raise JobFailed(f"{url}: {refusal(answer.status, answer.text, keys)}")
    try:
        return answer.json()
    except ValueError as error:
        raise JobFailed(f"the task app answered {url} with something that is not JSON") from error


def check_suitable(facts: TaskFacts, split: str | None, seeds: Iterable[int], keys: str) -> None:
    """Fail a job that asks for a split or seeds which the task app does not have; `keys` names its config keys."""
    problems = unsuitable(facts, split=split, seeds=seeds)
    if problems:
        raise JobFailed(f"{keys}: {'; '.join(problems)}")


def training_seeds(
    configured: tuple[int, ...] | None, facts: TaskFacts, split: str | None
) -> tuple[int, ...]:
    """The seeds to train on: those of the config, else the task app's own range."""
    if configured is not None:
        return configured
    ranges = facts.ranges(split if split is not None else facts.default_split)
    if not ranges:
        where = f" of split {split!r}" if split else ""
        raise ConfigError(
            f"[training.rollouts] seeds is missing and the task app names no seed_range{where}; "
            "list the seeds or give {start, count}"
        )
    first, last = ranges[0]
    if last - first >= MAX_SEEDS:
        raise ConfigError(
            f"the task app's seed_range [{first}, {last}] holds more than {MAX_SEEDS} seeds; "
            "give a part of it as [training.rollouts] seeds = {start, count}"
        )
    return tuple(range(first, last + 1))


def _environment_keys(session: Session, org_id: str, settings: Settings) -> list[str]:
    rows = session.exec(select(EnvironmentKey).where(EnvironmentKey.org_id == org_id)).all()
    newest_first = sorted(rows, key=lambda row: row.updated_at, reverse=True)
    return [key for row in newest_first for key in unseal(settings.secret_key, row.ciphertext)]
