"""From TOML text or a JSON object to a validated config, with errors that a person can act on.

Strict loading (our own command) refuses an unknown key and names the nearest valid one. Lenient
loading (other clients' payloads) drops unknown keys and reports them.
"""

from __future__ import annotations

import difflib
import tomllib
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from headrace.config.evaluation import EvalConfig
from headrace.config.rl import RLConfig
from headrace.config.sft import SFTConfig
from headrace.contracts.job import JobType
from headrace.errors import ConfigError

JobConfig = RLConfig | SFTConfig | EvalConfig
_MODELS: dict[JobType, type[JobConfig]] = {
    JobType.RL: RLConfig, JobType.SFT: SFTConfig, JobType.EVAL: EvalConfig
}  # fmt: skip


@dataclass(frozen=True)
class Loaded:
    """A validated config and the keys that were dropped from it (lenient loading only)."""

    config: JobConfig
    ignored: tuple[str, ...]


def parse_toml(text: str, name: str) -> dict[str, Any]:
    """Parse TOML; raises ConfigError with the line of the fault."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name} is not valid TOML: {error}") from error


def infer_type(raw: dict[str, Any]) -> JobType | None:
    """The job type that a config stands for; first match wins, None when nothing tells."""
    declared = raw.get("type") or raw.get("job_type")
    if declared in tuple(JobType):
        return JobType(declared)
    algorithm = _table(raw, "algorithm")
    if (
        algorithm.get("method") in ("policy_gradient", "ppo", "reinforce")
        or algorithm.get("type") == "online"
    ):
        return JobType.RL
    if algorithm.get("variety") in ("gspo", "grpo", "ppo"):
        return JobType.RL
    if algorithm.get("method") in ("supervised_finetune", "sft") or algorithm.get("type") == "offline":
        return JobType.SFT
    if algorithm.get("variety") == "fft":
        return JobType.SFT
    if "evaluation_job" in raw:
        return JobType.EVAL
    services = _table(raw, "services")
    if services.get("task_url") or services.get("environment"):
        return JobType.RL
    if str(_table(raw, "training").get("mode", "")).startswith("sft"):
        return JobType.SFT
    if _table(raw, "hyperparameters").get("train_kind") in ("sft", "fft"):
        return JobType.SFT
    return None


def load(raw: dict[str, Any], job_type: JobType, *, strict: bool) -> Loaded:
    """Validate `raw`; raises ConfigError that lists every problem, one sentence each."""
    model = _MODELS[job_type]
    unknown = list(_unknown_keys(raw, model, ()))
    if strict and unknown:
        problems = [_unknown_sentence(path, names) for path, names in unknown]
    else:
        problems = []
    kept = _without(raw, [path for path, _ in unknown])
    try:
        config = model.model_validate(kept)
    except ValidationError as error:
        problems += [_sentence(d) for d in error.errors(include_url=False) if not _is_other_branch(d)]
        raise ConfigError("; ".join(problems), problems=problems) from None
    if problems:
        raise ConfigError("; ".join(problems), problems=problems)
    return Loaded(config, tuple(_dotted(path) for path, _ in unknown))


def _table(raw: dict[str, Any], name: str) -> dict[str, Any]:
    value = raw.get(name)
    return value if isinstance(value, dict) else {}


def _submodel(annotation: Any) -> type[BaseModel] | None:
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def _unknown_keys(raw: dict[str, Any], model: type[BaseModel], at: tuple[str, ...]):
    """Yield (path, valid names beside it) of each key that the model does not have."""
    for key, value in raw.items():
        field = model.model_fields.get(key)
        if field is None:
            yield (*at, key), list(model.model_fields)
        elif isinstance(value, dict) and (inner := _submodel(field.annotation)) is not None:
            yield from _unknown_keys(value, inner, (*at, key))


def _without(raw: dict[str, Any], paths: list[tuple[str, ...]]) -> dict[str, Any]:
    here = {path[0] for path in paths if len(path) == 1}
    kept = {}
    for key, value in raw.items():
        if key in here:
            continue
        deeper = [path[1:] for path in paths if len(path) > 1 and path[0] == key]
        kept[key] = _without(value, deeper) if deeper else value
    return kept


def _dotted(path: tuple[str | int, ...]) -> str:
    """`("training", "rollouts", "seeds")` as a person writes it: `[training.rollouts] seeds`."""
    *sections, key = [str(part) for part in path] or ["config"]
    return f"[{'.'.join(sections)}] {key}" if sections else key


def _unknown_sentence(path: tuple[str, ...], valid: list[str]) -> str:
    nearest = difflib.get_close_matches(path[-1], valid, n=1, cutoff=0.5)
    hint = f"did you mean `{nearest[0]}`?" if nearest else f"valid here: {', '.join(sorted(valid))}"
    return f"unknown key {_dotted(path)}: {hint}"


def _is_label(part: str | int) -> bool:
    """Whether a part of an error's location names a branch of a union and no key."""
    return isinstance(part, str) and ("[" in part or part[:1].isupper())


def _is_other_branch(detail: Any) -> bool:
    """Of a list or a table (`seeds`) only the branch that the value's kind asks for has a say."""
    if not detail["loc"] or not _is_label(detail["loc"][-1]):
        return False
    is_table = isinstance(detail["input"], dict)
    return detail["type"] == "model_type" or (detail["type"] == "tuple_type" and is_table)


_PLAIN = {
    "tuple_type": "must be a list",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "string_type": "must be text",
    "too_short": "must not be empty",
}
"""Words for what the validator says in Python's."""


def _sentence(detail: Any) -> str:
    message = _PLAIN.get(detail["type"]) or detail["msg"].removeprefix("Value error, ")
    location = tuple(part for part in detail["loc"] if not _is_label(part))
    if detail["type"] == "missing":
        return f"missing key {_dotted(location)}"
    if not location or message.startswith("["):
        return message
    value = detail.get("input")
    shown = f" = {value!r}" if isinstance(value, str | int | float | bool) else ""
    return f"{_dotted(location)}{shown}: {message[:1].lower()}{message[1:]}"
