"""From a config file and the options over it to the payload that the API takes."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headrace.config.evaluation import EvalConfig
from headrace.config.load import JobConfig, infer_type, load, parse_toml
from headrace.config.rl import RLConfig
from headrace.config.sft import SFTConfig
from headrace.contracts.job import JobType
from headrace.errors import ConfigError

Json = dict[str, Any]
ROUTES = {JobType.RL: "/rl/jobs", JobType.SFT: "/learning/jobs", JobType.EVAL: "/eval/jobs"}


@dataclass(frozen=True)
class Overrides:
    """What the command line says over the config file."""

    type: str = "auto"
    task_url: str | None = None
    dataset: Path | None = None
    model: str | None = None
    examples: int | None = None
    """How many conversations of the dataset are sent."""
    mint: bool = False
    command: str = "train"
    """Whose sentences a refusal speaks."""


@dataclass(frozen=True)
class Submission:
    """One validated config, ready to be sent."""

    path: Path
    type: JobType
    text: str
    raw: Json
    """The TOML as JSON, with the overrides in it."""
    config: JobConfig

    @property
    def task_url(self) -> str | None:
        """Base URL of the task app that the job will play against."""
        match self.config:
            case RLConfig():
                return self.config.services.task_url
            case EvalConfig():
                return self.config.evaluation_job.task_url
            case _:
                return None

    @property
    def policy_url(self) -> str | None:
        """Where the task app reaches the policy, when the config says it."""
        return self.config.services.policy_url if isinstance(self.config, RLConfig) else None

    def changed(self, section: str, values: Json) -> Submission:
        """This submission with other values in a (dotted) section."""
        *outer, last = section.split(".")
        raw = copy.deepcopy(self.raw)
        table = raw
        for name in (*outer, last):
            table = table.setdefault(name, {})
        table.update(values)
        return replace(self, raw=raw, config=load(raw, self.type, strict=True).config)

    @property
    def names_dataset(self) -> bool:
        return isinstance(self.config, SFTConfig) and bool(self.config.job.data or self.config.job.data_path)

    @property
    def datasets(self) -> tuple[Path, Path | None]:
        """Training file and validation file of an SFT job, relative to the working directory."""
        assert isinstance(self.config, SFTConfig)
        job = self.config.job
        training, validation = job.data or job.data_path, self.config.data.validation_path
        if training is None:
            raise ConfigError(
                f"{self.path}: missing key [job] data; name a chat JSONL there or with --dataset"
            )
        return Path(training), Path(validation) if validation else None


def read(path: Path, over: Overrides, environ: Mapping[str, str]) -> Submission:
    """Read and validate a config strictly; raises ConfigError whose problems name the file."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"--config {path} cannot be read: {why}") from error
    raw = _as_json(parse_toml(text, str(path)), path)
    job_type = _job_type(raw, path, over)
    given = {"--task-url": over.task_url, "--dataset": over.dataset, "--examples": over.examples}
    _refuse_foreign_options(job_type, path, {**given, "--mint": over.mint})
    raw = _overridden(raw, job_type, over, environ)
    try:
        config = load(raw, job_type, strict=True).config
    except ConfigError as error:
        problems = [f"{path}: {problem}" for problem in error.details["problems"]]  # type: ignore[union-attr]
        raise ConfigError("; ".join(problems), problems=problems) from None
    return Submission(path, job_type, text, raw, config)


def payload(
    submission: Submission,
    backend_url: str,
    files: tuple[str, str | None] | None,
    allow_experimental: bool | None = None,
) -> Json:
    """The body of the job's POST. `files` are the ids of an SFT job's uploaded datasets; None leaves the
    question of experimental models to the API."""
    body = _payload(submission, backend_url, files)
    return body if allow_experimental is None else {**body, "allow_experimental": allow_experimental}


def _payload(submission: Submission, backend_url: str, files: tuple[str, str | None] | None) -> Json:
    match submission.config:
        case RLConfig():
            return _rl_payload(submission, submission.config, backend_url)
        case SFTConfig():
            assert files is not None
            return _sft_payload(submission, submission.config, *files)
        case _:
            return {"config": submission.raw, "config_toml": submission.text, "strict": True}


_NAMES = {JobType.RL: "RL", JobType.SFT: "SFT", JobType.EVAL: "evaluation"}
_BELONGS = {
    "--dataset": (JobType.SFT,),
    "--examples": (JobType.SFT,),
    "--task-url": (JobType.RL, JobType.EVAL),
    "--mint": (JobType.RL, JobType.EVAL),
}
"""Options that mean something to jobs of some types only."""


def _job_type(raw: Json, path: Path, over: Overrides) -> JobType:
    """What the config is, which a `--type` may only say where the config does not."""
    inferred = infer_type(raw)
    if over.type == "auto":
        if inferred is None:
            raise ConfigError(
                f'{path} does not say what job it is: add type = "rl", "sft" or "eval" at its top, or give --type'
            )
        return inferred
    wanted = JobType(over.type)
    if inferred in (None, wanted):
        return wanted
    if over.command == "eval":
        raise ConfigError(
            f"{path} is the config of an {_NAMES[inferred]} job: train with `headrace train --config {path}`; an "
            'evaluation has a config of its own, with type = "eval", [model] and [evaluation_job]'
        )
    raise ConfigError(f"{path} is the config of an {_NAMES[inferred]} job; leave out --type {wanted.value}")


def _refuse_foreign_options(job_type: JobType, path: Path, given: Mapping[str, object]) -> None:
    for option, types in _BELONGS.items():
        if given.get(option) and job_type not in types:
            kinds = " and ".join(_NAMES[kind] for kind in types)
            raise ConfigError(f"{option} is for {kinds} jobs; {path} is of type {job_type.value}")


def idempotency_key(given: str | None, body: Json, n_configs: int) -> str | None:
    """The header's value: as given for one config; with the payload's hash behind it for several."""
    if given is None or n_configs == 1:
        return given
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    return f"{given}-{digest[:8]}"


def _rl_payload(submission: Submission, config: RLConfig, backend_url: str) -> Json:
    start = "base_model" if config.model.base is not None else "model"
    return {
        "job_type": "rl",
        "compute": submission.raw.get("compute", {}),
        "data": {
            "endpoint_base_url": config.services.task_url,
            "config": submission.raw,
            "config_toml": submission.text,
            start: config.model.start,
        },
        "tags": {"source": "train-cli"},
        "metadata": {"backend_base_url": backend_url},
        "strict": True,
    }


def _sft_payload(submission: Submission, config: SFTConfig, training: str, validation: str | None) -> Json:
    raw = submission.raw
    checked = raw.get("training", {}).get("validation", {})
    data = {"topology": config.data.topology, **({"validation_files": [validation]} if validation else {})}
    body: Json = {
        "model": config.job.model,
        "training_type": "sft_offline",
        "hyperparameters": {**raw.get("hyperparameters", {}), **checked},
        "metadata": {
            "effective_config": {
                "compute": raw.get("compute", {}),
                "data": data,
                "training": raw.get("training", {}),
            }
        },
        "training_file_id": training,
        "config": raw,
        "config_toml": submission.text,
        "strict": True,
    }
    return {**body, "validation_file_id": validation} if validation else body


def _overridden(raw: Json, job_type: JobType, over: Overrides, environ: Mapping[str, str]) -> Json:
    """`raw` with the command line's values where the job's type has a key for them."""
    if job_type is JobType.SFT:
        given = {"model": over.model, "data": str(over.dataset) if over.dataset else None}
        return _with(raw, "job", {key: value for key, value in given.items() if value})
    task_url = over.task_url or environ.get("TASK_APP_URL")
    section = "services" if job_type is JobType.RL else "evaluation_job"
    if task_url:
        raw = _with(raw, section, {"task_url": task_url})
    if over.model:
        kept = {key: value for key, value in _table(raw, "model").items() if key not in ("base", "source")}
        raw = {**raw, "model": {**kept, "source": over.model}}
    return raw


def _with(raw: Json, section: str, values: Json) -> Json:
    return {**raw, section: {**_table(raw, section), **values}} if values else raw


def _table(raw: Json, section: str) -> Json:
    table = raw.get(section, {})
    if not isinstance(table, dict):
        raise ConfigError(f"{section} must be a table: write [{section}] on a line of its own")
    return table


def _as_json(raw: Json, path: Path) -> Json:
    """TOML has dates and infinities that JSON lacks: dates become text, infinities are refused."""
    try:
        return json.loads(json.dumps(raw, default=str, allow_nan=False))
    except ValueError as error:
        raise ConfigError(f"{path} holds inf or nan, which a job's config cannot") from error
