"""`--dry-run`: what would be sent, every default, and what the task app suggests; nothing is created.

The payload alone is on stdout, so that it can be kept in a file; all else is on stderr.
"""

from __future__ import annotations

import click

from headrace.client import ApiClient
from headrace.contracts.job import JobType
from headrace.contracts.task_app import TaskFacts
from headrace.errors import ConfigError, Unauthorized, Unavailable
from headrace_cli.backend import base_url, find_target
from headrace_cli.datasets import Dataset
from headrace_cli.envfiles import environment_keys
from headrace_cli.fitting import known_pools, offered, overlap, refuse_impossible, suggestions
from headrace_cli.preflight import look
from headrace_cli.preview import preview, secrets_of, shown
from headrace_cli.session import Json, Session
from headrace_cli.submission import ROUTES, Submission, idempotency_key, payload
from headrace_cli.verification import describe

NO_BACKEND = "http://127.0.0.1:8760"
"""Shown where no API is named and none runs here."""


def dry_run(
    session: Session, submission: Submission, datasets: tuple[Dataset, Dataset | None] | None
) -> None:
    """Print the payload of one config. Only the task app is asked, if it answers: no key is uploaded, no
    file and no job made.

    Raises ConfigError where the config asks the task app for what it has not.
    """
    session.say(f"Using config: {submission.path} ({submission.type})")
    submission, suggested = _fitted(session, submission)
    base = _base(session)
    body = payload(submission, base, _file_names(datasets), session.allow_experimental)
    secrets = secrets_of(session.environ)
    resolved = submission.config.model_dump(mode="json")
    url = f"{base}/api/v1{ROUTES[submission.type]}"
    if session.options.as_json:
        session.answer(
            {
                "config": str(submission.path),
                "type": submission.type.value,
                "url": url,
                "payload": shown(body, secrets),
                "resolved": shown(resolved, secrets),
                "suggestions": suggested,
                "dry_run": True,
            }
        )
        return
    if submission.type is not JobType.SFT:  # an SFT payload is known after the upload only
        key = idempotency_key(session.options.idempotency, body, len(session.configs))
        if key is not None:
            session.say(f"Idempotency-Key: {key}")
    for dataset in datasets or ():
        if dataset is not None:
            session.say(f"Dataset: {dataset.path} ({dataset.size})")
    session.say(f"Config with every default:\n{preview(resolved, secrets)}")
    if suggested is not None:
        session.say(f"Suggestions:\n{preview(suggested, ())}")
    session.say(f"POST {url} (dry run: not sent, nothing was created), with the payload")
    click.echo(preview(body, secrets))


def _fitted(session: Session, submission: Submission) -> tuple[Submission, Json | None]:
    """The submission as a person completes it, and what is suggested; refused as a real one would be."""
    url = submission.task_url
    if url is None:
        return submission, None
    seen = look(url, environment_keys(session.environ))
    facts = seen.facts or TaskFacts()
    if seen.error is not None:
        session.warn(f"seeds and splits were not checked: {seen.error.message}")
    for line in describe(facts):
        session.say(line)
    pools = _pools(session)
    try:
        submission = offered(session, submission, facts, pools)
        refuse_impossible(submission, facts, pools)
    except ConfigError as error:
        session.answer(
            {
                "config": str(submission.path),
                "error": error.message,
                "suggestions": error.details.get("suggestions"),
            }
        )
        raise
    if warning := overlap(submission, facts):
        session.warn(warning)
    return submission, suggestions(submission, facts, pools)


def _pools(session: Session) -> list[Json]:
    """The API's pools where one can be asked, else those that ship."""
    try:
        target = find_target(session.options.backend, session.environ)
        with ApiClient(target.url, target.key, timeout_s=5.0) as api:
            return known_pools(api)
    except (Unauthorized, Unavailable):
        return known_pools(None)


def _base(session: Session) -> str:
    try:
        url = find_target(session.options.backend, session.environ).shown
    except (Unauthorized, Unavailable):
        url = base_url(session.options.backend, session.environ) or NO_BACKEND
    return ApiClient(url).base_url


def _file_names(datasets: tuple[Dataset, Dataset | None] | None) -> tuple[str, str | None] | None:
    if datasets is None:
        return None
    training, validation = datasets
    return (
        f"(id of {training.path} after its upload)",
        f"(id of {validation.path} after its upload)" if validation else None,
    )
