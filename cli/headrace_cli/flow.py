"""The way of a submission: read and check every config first, then submit and follow one after the other."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path
from typing import Any

import click

from headrace.client import ApiClient
from headrace.contracts.job import JobType
from headrace.errors import ConfigError, HeadraceError, NotFound, Unavailable
from headrace_cli.backend import connect
from headrace_cli.envfiles import environment_keys, merged
from headrace_cli.follow import follow, require_success, view_for
from headrace_cli.preflight import check_task_app
from headrace_cli.render import print_json, print_report
from headrace_cli.submission import Overrides, Submission, idempotency_key, payload, read

Json = dict[str, Any]


@dataclass(frozen=True)
class Options:
    """What `headrace train` and `headrace eval` were called with."""

    configs: tuple[Path, ...]
    idempotency: str | None
    dry_run: bool
    poll: bool
    poll_timeout: float
    poll_interval: float
    as_json: bool
    backend: str | None
    env_file: tuple[Path, ...]


def submit_all(over: Overrides, options: Options) -> None:
    """Submit each config, follow it, and stop at the first that does not succeed."""
    environ = merged(options.env_file, os.environ)
    submissions = [read(path, over, environ) for path in options.configs]
    for submission in submissions:
        if submission.type is JobType.SFT:
            _require_files(submission)
    if options.dry_run:
        for submission in submissions:
            print_json(_dry(submission, options.backend or environ.get("HEADRACE_API_URL", "")))
        return
    keys = environment_keys(environ)
    with connect(options.backend, environ) as api:
        for submission in submissions:
            _run(api, submission, keys, options)


def _run(api: ApiClient, submission: Submission, keys: Sequence[str], options: Options) -> None:
    if submission.task_url is not None:
        _check_task_app(api, submission.task_url, keys, options)
    files = _upload_all(api, submission, options) if submission.type is JobType.SFT else None
    body = payload(submission, api.base_url, files)
    key = idempotency_key(options.idempotency, body, len(options.configs))
    create = {
        JobType.RL: api.create_rl_job,
        JobType.SFT: api.create_sft_job,
        JobType.EVAL: api.create_eval_job,
    }[submission.type]
    job = create(body, key)
    _tell(options, f"{submission.path.name}: {submission.type} job {job['job_id']} {job['status']}")
    if options.poll:
        view = view_for(options.as_json)
        job = follow(api, job, view, timeout_s=options.poll_timeout, interval_s=options.poll_interval)
    if options.as_json:
        click.echo(json.dumps(job))
    if options.poll:
        require_success(job)
        if not options.as_json:
            _report(job, submission.type)


def _check_task_app(api: ApiClient, url: str, keys: Sequence[str], options: Options) -> None:
    """From here first (one sentence per failure), then from the API with the keys that it keeps."""
    check_task_app(url, keys)
    upload_environment_keys(api, keys)
    try:
        answer = api.verify_task_app(url)
    except NotFound:
        _tell(options, f"task app {url} answers")
        return
    if not answer.get("any_ok"):
        statuses = ", ".join(_outcome(attempt) for attempt in answer.get("attempts", [])) or "no attempt"
        raise Unavailable(
            f"the task app at {url} answers here, but not to the API at {api.base_url} ({statuses}); "
            "give a task_url that the API's machine can reach"
        )
    candidates = answer.get("candidates_first15")
    n = len(candidates) if isinstance(candidates, list) else candidates
    _tell(options, f"task app {url}: verification OK (candidates={n})")


def _outcome(attempt: Json) -> str:
    return str(attempt.get("error") or attempt.get("status"))


def upload_environment_keys(api: ApiClient, keys: Sequence[str]) -> list[Json]:
    """Store the task app's keys at the API, each sealed before it leaves this process."""
    try:
        return [api.upload_environment_key(key) for key in keys]
    except ImportError as error:
        raise HeadraceError(
            "sealing ENVIRONMENT_API_KEY for the API needs PyNaCl, which is not installed: pip install pynacl"
        ) from error


def _require_files(submission: Submission) -> None:
    training, validation = submission.datasets
    for path in (training, validation):
        if path is not None and not path.is_file():
            raise ConfigError(
                f"{submission.path}: dataset {path} does not exist (looked for in {Path.cwd()}); "
                "correct the path or give --dataset"
            )


def _upload_all(api: ApiClient, submission: Submission, options: Options) -> tuple[str, str | None]:
    training, validation = submission.datasets
    kept = {row["sha256"]: row["id"] for row in api.list_files() if row.get("sha256")}
    return (
        _upload(api, training, kept, options),
        _upload(api, validation, kept, options) if validation else None,
    )


def _upload(api: ApiClient, path: Path, kept: dict[str, str], options: Options) -> str:
    """The id of the dataset at the API; one that it has already is used again, so a repeat is the same job."""
    with path.open("rb") as file:
        digest = file_digest(file, "sha256").hexdigest()
    if digest not in kept:
        kept[digest] = api.upload_file(path)["id"]
        _tell(options, f"uploaded {path} as {kept[digest]}")
    return kept[digest]


def _dry(submission: Submission, backend_url: str) -> Json:
    if submission.type is not JobType.SFT:
        return payload(submission, backend_url, None)
    training, validation = submission.datasets
    return payload(
        submission,
        backend_url,
        (
            f"(id of {training} after its upload)",
            f"(id of {validation} after its upload)" if validation else None,
        ),
    )


def _report(job: Json, job_type: JobType) -> None:
    if job.get("model_id"):
        click.echo(f"model {job['model_id']}")
    if job.get("result"):
        print_report(job["result"])


def _tell(options: Options, text: str) -> None:
    click.echo(text, err=options.as_json)
