"""`headrace.Client`: submit a config, wait, look at what came of it, and talk to the trained model."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headrace.client.api import ApiClient
from headrace.client.job import Job
from headrace.client.local import find
from headrace.client.transport import Json
from headrace.contracts.job import JobType
from headrace.errors import ConfigError


class Client(ApiClient):
    """The API for people. Every route of `ApiClient` is there, too, and returns JSON as it came.

    >>> client = Client()                                  # doctest: +SKIP
    >>> job = client.submit("rl.toml").wait()              # doctest: +SKIP
    >>> client.chat(job.model_id, "2 + 3 =")               # doctest: +SKIP
    '5'
    """

    def __init__(
        self, base_url: str | None = None, api_key: str | None = None, *, timeout_s: float = 30.0
    ) -> None:
        """Without an address: HEADRACE_API_URL, else the stack that runs on this machine."""
        url, key = find(base_url, api_key, os.environ)
        super().__init__(url, key, timeout_s=timeout_s)

    def submit(
        self, config: str | Path | Json, *, idempotency_key: str | None = None, **overrides: Any
    ) -> Job:
        """Submit a job from a TOML file or a dictionary of the same shape; returns at once.

        A key that is not known is refused with the nearest one. `overrides` replace whole sections'
        keys: `submit("rl.toml", training={"iterations_per_epoch": 2})`. An SFT config's dataset
        (`[job] data`, relative to the working directory) is uploaded first.
        """
        raw, text = (config, None) if isinstance(config, dict) else _read(Path(config))
        if overrides:
            raw, text = _merged(raw, overrides), None
        job_type = _type_of(raw)
        body: Json = {"config": raw, "strict": True}
        if text is not None:
            body["config_toml"] = text
        if job_type is JobType.SFT:
            return Job(self, self.create_sft_job(body | self._datasets(raw), idempotency_key))
        if job_type is JobType.EVAL:
            return Job(self, self.create_eval_job(body, idempotency_key))
        strict = body.pop("strict")
        return Job(self, self.create_rl_job({"data": body, "strict": strict}, idempotency_key))

    def job(self, job_id: str) -> Job:
        """A job by its id."""
        return Job(self, self.get_job(job_id))

    def jobs(self, **filters: Any) -> list[Job]:
        """Newest first; `type`, `status`, `pool`, `model`, `tags`, `data`, `after` and `limit` filter."""
        return [Job(self, seen) for seen in self.list_jobs(**filters)]

    def chat(self, model: str | None, messages: str | Sequence[Json], **sampling: Any) -> str:
        """The reply of a trained model (`ft:...`, `checkpoint:...`) or a base one, as text.

        `messages` is one user message or a whole conversation; `sampling` is what
        `chat_completions` takes (`temperature`, `max_tokens`, ...). Raises Unavailable, which names
        the job, while a job holds the engine.
        """
        if model is None:
            raise ConfigError("model = None: a job has a model_id once it has succeeded")
        sent = [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)
        answer = self.chat_completions({"model": model, "messages": sent, **sampling})
        return answer["choices"][0]["message"].get("content") or ""

    def upload(self, path: str | Path) -> str:
        """Upload chat JSONL and return its file id; a bad line raises DataError, which names it."""
        return self.upload_file(Path(path))["id"]

    def _datasets(self, raw: Json) -> Json:
        """The ids of an SFT config's files, under the names that the API takes."""
        job, data = _section(raw, "job"), _section(raw, "data")
        training, validation = job.get("data") or job.get("data_path"), data.get("validation_path")
        if training is None:
            raise ConfigError("missing key [job] data: name a chat JSONL there")
        ids = {"training_file_id": self.upload(_existing(training, "[job] data"))}
        if validation is not None:
            ids["validation_file_id"] = self.upload(_existing(validation, "[data] validation_path"))
        return ids


def _read(path: Path) -> tuple[Json, str]:
    try:
        text = path.read_text()
        return tomllib.loads(text), text
    except OSError as error:
        raise ConfigError(f"config {path} cannot be read: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error


def _type_of(raw: Json) -> JobType:
    from headrace.config.load import infer_type  # the models of the config take a moment to load

    found = infer_type(raw)
    if found is None:
        raise ConfigError('the config does not say what job it is: add type = "rl", "sft" or "eval"')
    return found


def _merged(raw: Json, over: Json) -> Json:
    merged = dict(raw)
    for key, value in over.items():
        here = merged.get(key)
        merged[key] = _merged(here, value) if isinstance(here, dict) and isinstance(value, dict) else value
    return merged


def _section(raw: Json, name: str) -> Json:
    section = raw.get(name, {})
    if not isinstance(section, dict):
        raise ConfigError(f"{name} must be a table: write [{name}]")
    return section


def _existing(name: str, key: str) -> Path:
    path = Path(name)
    if not path.is_file():
        raise ConfigError(f"{key} = {name!r} does not exist (looked for in {Path.cwd()})")
    return path
