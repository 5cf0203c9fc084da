"""The way of a submission: read and check every config first, then submit and follow one after the other."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

from headrace.client import ApiClient
from headrace.contracts.job import JobType
from headrace.errors import ConfigError, HeadraceError
from headrace_cli.asking import choose
from headrace_cli.backend import find_target, key_prefix
from headrace_cli.datasets import Dataset, checked, stored
from headrace_cli.discovery import find_datasets, remember
from headrace_cli.dry_run import dry_run
from headrace_cli.errors import Interrupted
from headrace_cli.fitting import known_pools, offered, overlap, refuse_impossible, suggestions
from headrace_cli.follow import follow, follow_hint, require_success, view_for
from headrace_cli.preview import preview, secrets_of, shown
from headrace_cli.render import print_report
from headrace_cli.session import Json, Options, Session, introduce, opened
from headrace_cli.submission import ROUTES, Overrides, Submission, idempotency_key, payload, read
from headrace_cli.verification import verified

_ANSWERED = ("job_id", "status", "type", "model", "pool", "topology")
"""What the transcript shows of the API's answer."""


@dataclass(frozen=True)
class Prepared:
    """A config that was read, with its checked datasets."""

    submission: Submission
    datasets: tuple[Dataset, Dataset | None] | None = None


def submit_all(over: Overrides, options: Options) -> None:
    """Submit each config, follow it, and stop at the first that does not succeed."""
    session: Session | None = None
    try:
        session = opened(options, None if over.type == "auto" else JobType(over.type))
        with tempfile.TemporaryDirectory(prefix="headrace-") as folder:
            _submit_all(session, over, Path(folder))
    except (KeyboardInterrupt, click.Abort):
        stage = session.stage if session is not None else Session.stage
        raise Interrupted(f"interrupted; {stage}") from None


def _submit_all(session: Session, over: Overrides, folder: Path) -> None:
    introduce(session)
    read_all = [_with_dataset(session, read(path, over, session.environ)) for path in session.configs]
    prepared = [_prepared(submission, over, folder) for submission in read_all]
    if session.options.dry_run:
        for one in prepared:
            dry_run(session, one.submission, one.datasets)
        return
    target = find_target(session.options.backend, session.environ)
    with ApiClient(target.url, target.key) as api:
        session.base_line = f"Backend base: {target.shown} (key {key_prefix(target.key)})"
        for number, one in enumerate(prepared):
            try:
                _run(session, api, one)
            except (HeadraceError, KeyboardInterrupt, click.Abort):
                skipped = [str(later.submission.path) for later in prepared[number + 1 :]]
                if skipped:
                    session.warn(f"skipped: {', '.join(skipped)}")
                raise


def _run(session: Session, api: ApiClient, one: Prepared) -> None:
    """One config from its preflight to its end."""
    submission, options = one.submission, session.options
    session.say(f"Using config: {submission.path} ({submission.type})")
    session.say(session.base_line)
    submission, suggested = _against_the_world(session, api, submission)
    files = _uploaded(session, api, one.datasets)
    body = payload(submission, api.base_url, files, session.allow_experimental)
    job = _created(session, api, submission, body)
    remember(session.home, submission.path)
    if options.poll:
        session.say(
            f"Polling {job['job_id']} (interval={options.poll_interval:g}s, timeout={options.poll_timeout:g}s)"
        )
        view = view_for(options.as_json)
        job = follow(api, job, view, timeout_s=options.poll_timeout, interval_s=options.poll_interval)
        session.say(f"Final status: {job['status']}")
    else:
        session.say(f"Not followed: {follow_hint(job['job_id'])}")
    session.answer({**job, "config": str(submission.path), "suggestions": suggested})
    if options.poll:
        require_success(job)
        session.stage = f"job {job['job_id']} succeeded; nothing else was submitted"
        if not options.as_json:
            _report(job)


def _against_the_world(
    session: Session, api: ApiClient, submission: Submission
) -> tuple[Submission, Json | None]:
    """The submission as the task app and the pools allow it, and what they suggest.

    An impossible one is told to machines, too, with the suggestions, before its error is raised.
    """
    if submission.type is JobType.SFT:
        return submission, None
    facts = verified(session, api, submission)
    pools = known_pools(api)
    try:
        submission = offered(session, submission, facts, pools)
        refuse_impossible(submission, facts, pools)
    except ConfigError as error:
        refusal = {
            "config": str(submission.path),
            "error": error.message,
            "suggestions": error.details.get("suggestions"),
        }
        session.answer(refusal)
        raise
    if warning := overlap(submission, facts):
        session.warn(warning)
    return submission, suggestions(submission, facts, pools)


def _created(session: Session, api: ApiClient, submission: Submission, body: Json) -> Json:
    key = idempotency_key(session.options.idempotency, body, len(session.configs))
    secrets = secrets_of(session.environ)
    session.say(f"POST {api.base_url}/api/v1{ROUTES[submission.type]}")
    if key is not None:
        session.say(f"Idempotency-Key: {key}")
    session.say(f"Payload preview:\n{preview(body, secrets)}")
    session.stage = "the job may have been submitted: look at `headrace jobs list`"
    create: Callable[[Json, str | None], Json] = {
        JobType.RL: api.create_rl_job,
        JobType.SFT: api.create_sft_job,
        JobType.EVAL: api.create_eval_job,
    }[submission.type]
    job = create(body, key)
    session.stage = f"job {job['job_id']} goes on: {follow_hint(job['job_id'])}"
    answer = {name: job[name] for name in _ANSWERED if job.get(name) is not None}
    session.say(f"Response {api.last_status}: {json.dumps(shown(answer, secrets), ensure_ascii=False)}")
    return job


def _with_dataset(session: Session, submission: Submission) -> Submission:
    """An SFT config that names no dataset gets one that a person chooses."""
    if submission.type is not JobType.SFT or submission.names_dataset or not session.can_ask:
        return submission
    found = find_datasets(Path())
    if not found:
        return submission
    chosen = choose(
        f"{submission.path} names no dataset; chat JSONL found here", [str(path) for path in found]
    )
    assert chosen is not None
    return submission.changed("job", {"data": str(found[chosen])})


def _prepared(submission: Submission, over: Overrides, folder: Path) -> Prepared:
    if submission.type is not JobType.SFT:
        return Prepared(submission)
    training, validation = submission.datasets
    try:
        return Prepared(
            submission,
            (checked(training, folder, over.examples), checked(validation, folder) if validation else None),
        )
    except ConfigError as error:
        raise ConfigError(f"{submission.path}: {error.message}") from error


def _uploaded(
    session: Session, api: ApiClient, datasets: tuple[Dataset, Dataset | None] | None
) -> tuple[str, str | None] | None:
    if datasets is None:
        return None
    training, validation = datasets
    return stored(api, training, session), stored(api, validation, session) if validation else None


def _report(job: Json) -> None:
    if job.get("model_id"):
        click.echo(f"model {job['model_id']}")
    if job.get("result"):
        print_report(job["result"])
