"""From a request's JSON to a validated submission. Knows no database.

Every shape of a request becomes one raw config, which is then validated as a TOML would be.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from headrace.config.evaluation import EvalConfig
from headrace.config.load import JobConfig, load
from headrace.config.notes import Note, ignored
from headrace.config.rl import RLConfig
from headrace.config.sft import SFTConfig
from headrace.contracts.job import JobType
from headrace.errors import ConfigError
from headrace_api.jobs.request_tables import Json, config_of, error, flag, table
from headrace_api.jobs.rl_request import read_rl
from headrace_api.jobs.sft_request import read_sft

MAX_DEPTH = 100
"""Nesting of a request; JSON readers down the line stop at 200."""


@dataclass(frozen=True)
class Submission:
    """A job as asked for, with a config that parses."""

    job_type: JobType
    config: JobConfig
    submitted: Json
    """The config as it came."""
    toml: str | None
    data: Json = field(default_factory=dict)
    metadata: Json = field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    """What the job's first events have to tell about the config."""
    allow_experimental: bool = False
    """Whether a model that the operator calls experimental may be trained."""

    @property
    def model(self) -> str:
        return self.config.job.model if isinstance(self.config, SFTConfig) else self.config.model.start


def canonical(payload: Json) -> bytes:
    """The payload as canonical JSON; raises ConfigError for what a database or a reader could not keep."""
    try:
        text = json.dumps(payload, sort_keys=True, allow_nan=False, ensure_ascii=False)
        body = text.encode()
    except UnicodeEncodeError:
        raise error("the request holds half of a surrogate pair, which is no text") from None
    except ValueError:
        raise error("the request holds NaN or Infinity, which JSON has not") from None
    except RecursionError:
        raise _too_deep() from None
    if _is_too_deep(payload):
        raise _too_deep()
    if "\\u0000" in text.replace("\\\\", ""):  # an escaped backslash before a u is text
        raise error("the request holds a NUL character, which no text column keeps")
    return body


def _is_too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        children = (v.values() if isinstance(v, dict) else v for v in level)
        level = [child for some in children for child in some if isinstance(child, dict | list)]
    return bool(level)


def _too_deep() -> ConfigError:
    return error(f"the request nests deeper than {MAX_DEPTH}, which its readers do not follow")


def read(job_type: JobType, payload: Json) -> Submission:
    """Validate the payload of a job of this type; raises ConfigError that lists every problem."""
    declared = payload.get("job_type")
    if declared not in (None, job_type):
        raise error(f"job_type = {declared!r} does not fit this route, which makes {job_type} jobs")
    return {JobType.RL: _rl, JobType.SFT: _sft, JobType.EVAL: _eval}[job_type](payload)


def _rl(payload: Json) -> Submission:
    strict = flag(payload, "strict")
    request = read_rl(payload, strict=strict)
    loaded = load(request.raw, JobType.RL, strict=strict)
    assert isinstance(loaded.config, RLConfig)
    notes = tuple(replaced.note("rl") for replaced in request.replaced)
    data = loaded.config.data.model_dump(mode="json", exclude_unset=True)
    return Submission(
        JobType.RL,
        loaded.config,
        request.submitted,
        request.toml,
        data,
        table(payload, "metadata"),
        (*notes, *ignored("rl", request.unread), *loaded.notes),
        flag(payload, "allow_experimental"),
    )


def _eval(payload: Json) -> Submission:
    submitted, toml = config_of(payload)
    loaded = load(submitted, JobType.EVAL, strict=flag(payload, "strict"))
    assert isinstance(loaded.config, EvalConfig)
    return Submission(
        JobType.EVAL,
        loaded.config,
        submitted,
        toml,
        dict(loaded.config.data),
        table(payload, "metadata"),
        (*ignored("eval", [key for key in payload if key not in _EVAL_KEYS]), *loaded.notes),
        flag(payload, "allow_experimental"),
    )


_EVAL_KEYS = ("job_type", "strict", "allow_experimental", "metadata", "config", "config_toml")


def _sft(payload: Json) -> Submission:
    request = read_sft(payload)
    loaded = load(request.raw, JobType.SFT, strict=flag(payload, "strict"))
    assert isinstance(loaded.config, SFTConfig)
    return Submission(
        JobType.SFT,
        loaded.config,
        request.submitted,
        request.toml,
        dict(request.files),
        table(payload, "metadata"),
        (*ignored("sft", request.unread), *loaded.notes),
        flag(payload, "allow_experimental"),
    )
