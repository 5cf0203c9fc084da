"""From a request's JSON to a validated submission. Knows no database.

Three shapes of an RL request are in use (a whole config under `data.config`, a flat one, and one
with a `trainer` table); all become one raw config here, which is then validated as a TOML would be.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field
from typing import Any

from headrace.config.evaluation import EvalConfig
from headrace.config.load import JobConfig, load, parse_toml
from headrace.config.rl import RLConfig
from headrace.config.sft import SFTConfig
from headrace.contracts.job import JobType
from headrace.errors import ConfigError

Json = dict[str, Any]
MAX_DEPTH = 100
"""Nesting of a request; JSON readers down the line stop at 200."""


@dataclass(frozen=True)
class Note:
    """Something that the job's events have to tell about its config."""

    type: str
    message: str
    data: Json
    level: str = "warning"


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

    @property
    def model(self) -> str:
        return self.config.job.model if isinstance(self.config, SFTConfig) else self.config.model.start


def canonical(payload: Json) -> bytes:
    """The payload as canonical JSON; raises ConfigError for what a database or a reader could not keep."""
    try:
        text = json.dumps(payload, sort_keys=True, allow_nan=False, ensure_ascii=False)
        body = text.encode()
    except UnicodeEncodeError:
        raise _error("the request holds half of a surrogate pair, which is no text") from None
    except ValueError:
        raise _error("the request holds NaN or Infinity, which JSON has not") from None
    except RecursionError:
        raise _too_deep() from None
    if _is_too_deep(payload):
        raise _too_deep()
    if "\\u0000" in text.replace("\\\\", ""):  # an escaped backslash before a u is text
        raise _error("the request holds a NUL character, which no text column keeps")
    return body


def _is_too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        children = (v.values() if isinstance(v, dict) else v for v in level)
        level = [child for some in children for child in some if isinstance(child, dict | list)]
    return bool(level)


def _too_deep() -> ConfigError:
    return _error(f"the request nests deeper than {MAX_DEPTH}, which its readers do not follow")


def read(job_type: JobType, payload: Json) -> Submission:
    """Validate the payload of a job of this type; raises ConfigError that lists every problem."""
    declared = payload.get("job_type")
    if declared not in (None, job_type):
        raise _error(f"job_type = {declared!r} does not fit this route, which makes {job_type} jobs")
    return {JobType.RL: _rl, JobType.SFT: _sft, JobType.EVAL: _eval}[job_type](payload)


def _rl(payload: Json) -> Submission:
    data = _object(payload, "data") if "data" in payload else payload
    submitted, toml = _config(data)
    raw = copy.deepcopy(submitted)
    if data.get("endpoint_base_url") is not None:
        _section(raw, "services")["task_url"] = data["endpoint_base_url"]
    if data.get("base_model") is not None or data.get("model") is not None:
        start = _section(raw, "model")
        start.pop("base", None)
        start.pop("source", None)
        # The request's own model wins: the reference client does not rewrite the config for it.
        key = "source" if data.get("model") is not None else "base"
        start[key] = data.get("model") or data.get("base_model")
    for key, value in _object(data, "trainer").items():
        _section(raw, "training").setdefault(key, value)
    strict = _is_strict(payload)
    overridden = () if strict else _neutralise(raw)
    loaded = load(raw, JobType.RL, strict=strict)
    assert isinstance(loaded.config, RLConfig)
    ignored = list(loaded.ignored)
    if data.get("job_config_id") is not None:
        ignored.append("job_config_id")
    notes = _notes("rl", ignored, loaded.config.not_used, overridden) + _warnings(loaded.config)
    metadata = _object(payload, "metadata")
    return Submission(JobType.RL, loaded.config, submitted, toml, dict(loaded.config.data), metadata, notes)


def _eval(payload: Json) -> Submission:
    submitted, toml = _config(payload)
    loaded = load(submitted, JobType.EVAL, strict=_is_strict(payload))
    assert isinstance(loaded.config, EvalConfig)
    notes = _notes("eval", loaded.ignored, (), ())
    metadata = _object(payload, "metadata")
    return Submission(JobType.EVAL, loaded.config, submitted, toml, dict(loaded.config.data), metadata, notes)


_VALIDATION_KEYS = (
    "evaluation_strategy", "eval_steps", "save_best_model_at_end", "metric_for_best_model", "greater_is_better"
)  # fmt: skip
"""Keys that the reference client moves from `[training.validation]` into the hyperparameters."""


def _sft(payload: Json) -> Submission:
    submitted, toml = _config(payload)
    raw = copy.deepcopy(submitted) or _from_hyperparameters(payload)
    if payload.get("model") is not None:
        _section(raw, "job")["model"] = payload["model"]
    loaded = load(raw, JobType.SFT, strict=_is_strict(payload))
    assert isinstance(loaded.config, SFTConfig)
    training = payload.get("training_file_id") or payload.get("training_file")
    if not isinstance(training, str):
        raise _error("missing key training_file_id: upload the dataset with POST /files and give its id")
    data: Json = {"training_file_id": training}
    validation = payload.get("validation_file_id") or _validation_file(payload)
    if validation is not None:
        data["validation_file_id"] = validation
    notes = _notes("sft", loaded.ignored, loaded.config.not_used, ())
    metadata = _object(payload, "metadata")
    return Submission(JobType.SFT, loaded.config, submitted or raw, toml, data, metadata, notes)


def _from_hyperparameters(payload: Json) -> Json:
    """The config behind a request that carries hyperparameters instead of a config."""
    effective = _object(_object(payload, "metadata"), "effective_config")
    training = dict(_object(effective, "training"))
    given = {key: value for key, value in _object(payload, "hyperparameters").items() if value is not None}
    moved = {key: given.pop(key) for key in _VALIDATION_KEYS if key in given}
    if moved or "validation" in training:
        training["validation"] = {**_object(training, "validation"), **moved}
    raw: Json = {"hyperparameters": given, "training": training}
    if compute := _object(effective, "compute"):
        raw["compute"] = compute
    return raw


def _validation_file(payload: Json) -> str | None:
    """The file that the reference client names in the effective config."""
    effective = _object(_object(payload, "metadata"), "effective_config")
    files = _object(effective, "data").get("validation_files")
    return files[0] if isinstance(files, list) and files and isinstance(files[0], str) else None


def _config(holder: Json) -> tuple[Json, str | None]:
    """The config as JSON and, where it came, the TOML text (which alone is enough)."""
    toml = holder.get("config_toml")
    if toml is not None and not isinstance(toml, str):
        raise _error("config_toml must be text")
    if toml is not None and holder.get("config") is None:
        return parse_toml(toml, "config_toml"), toml
    return _object(holder, "config"), toml


def _is_strict(payload: Json) -> bool:
    strict = payload.get("strict", False)
    if not isinstance(strict, bool):
        raise _error(f"strict = {strict!r} must be true or false")
    return strict


def _object(holder: Json, key: str) -> Json:
    """A table of the request; absent and null are empty."""
    value = holder.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _error(f"{key} must be an object, not {value!r}")
    return value


def _section(raw: Json, name: str) -> Json:
    """A section of the raw config to write into, made when it is absent."""
    section = raw.setdefault(name, {})
    if not isinstance(section, dict):
        raise _error(f"[{name}] must be a table, not {section!r}")
    return section


_NEUTRAL: dict[str, tuple[float | None, ...]] = {"top_p": (1, None), "top_k": (-1, 0, None)}


def _neutralise(raw: Json) -> tuple[str, ...]:
    """Take out of `[policy]` what would make sampled and scored probabilities differ; returns the keys."""
    policy = raw.get("policy")
    found = []
    if isinstance(policy, dict):
        found = [f"[policy] {key}" for key, neutral in _NEUTRAL.items() if policy.get(key) not in neutral]
        for name in found:
            del policy[name.removeprefix("[policy] ")]
    rollout = raw.get("rollout")
    asked = rollout.get("policy_config") if isinstance(rollout, dict) else None
    for name, table in (("[policy]", policy), ("[rollout.policy_config]", asked)):
        # Greedy members of a group would all be alike.
        if isinstance(table, dict) and table.get("temperature") == 0:
            del table["temperature"]
            found.append(f"{name} temperature")
    return tuple(found)


LOW_TEMPERATURE = 0.5


def _warnings(config: RLConfig) -> tuple[Note, ...]:
    """What is allowed and seldom meant."""
    notes = []
    if config.temperature < LOW_TEMPERATURE:
        sentence = f"temperature = {config.temperature:g} is low: members of a group will be much alike"
        notes.append(Note("rl.config.low_temperature", sentence, {"temperature": config.temperature}))
    shared = config.evaluated_training_seeds
    if shared:
        sentence = f"{len(shared)} evaluation seeds are training seeds, too, so they measure nothing held out"
        notes.append(Note("rl.config.seeds_overlap", sentence, {"seeds": list(shared[:20])}))
    return tuple(notes)


def _notes(prefix: str, ignored: Any, not_used: Any, overridden: Any) -> tuple[Note, ...]:
    notes = []
    for name, keys, sentence in (
        ("ignored", ignored, "unknown keys were ignored: {}"),
        ("not_used", not_used, "accepted without effect: {}"),
        ("overridden", overridden, "replaced by neutral values, since they change what is sampled: {}"),
    ):
        if keys:
            message = sentence.format(", ".join(keys))
            notes.append(Note(f"{prefix}.config.{name}", message, {"keys": list(keys)}))
    return tuple(notes)


def _error(sentence: str) -> ConfigError:
    return ConfigError(sentence, problems=[sentence])
