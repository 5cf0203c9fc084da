"""Asking the task app what a job's config leaves open. Imports no torch."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import httpx
from sqlmodel import Session, select

from headrace.contracts.task_app import TaskFacts, auth_headers, refusal
from headrace.errors import ConfigError, JobFailed
from headrace.queue.secrets import unseal
from headrace.settings import Settings
from headrace.store.tables import EnvironmentKey
from headrace_trainer.context import Context

ASK_S = 15.0
MAX_BYTES = 4 * 1024 * 1024
MAX_SEEDS = 10_000_000
ASK_AGAIN_S = 2.0


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
    """The answer's JSON, within `ASK_S` in all: a time-out of reads alone is never met by a drip of bytes."""
    deadline, body = time.monotonic() + ASK_S, bytearray()
    with httpx.stream("GET", url, headers=auth_headers(keys), timeout=ASK_S) as reply:
        for chunk in reply.iter_bytes():
            body += chunk
            if len(body) > MAX_BYTES:
                raise JobFailed(f"the task app's answer to {url} is larger than {MAX_BYTES >> 20} MiB")
            if time.monotonic() > deadline:
                raise JobFailed(f"the task app did not finish its answer to {url} within {ASK_S:g} s")
    if reply.status_code != 200:
        text = body[:2000].decode(errors="replace")
        raise JobFailed(f"{url}: {refusal(reply.status_code, text, keys)}")
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
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
