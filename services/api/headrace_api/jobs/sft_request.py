"""From an SFT request, with a config or with hyperparameters alone, to one raw config and its files."""

from __future__ import annotations

import copy
from dataclasses import dataclass

from headrace_api.jobs.request_tables import Json, config_of, error, section, table, text

_TOP = (
    "job_type", "strict", "allow_experimental", "metadata", "model", "training_type", "hyperparameters",
    "training_file_id", "training_file", "validation_file_id", "validation_file", "config", "config_toml",
)  # fmt: skip
_VALIDATION_KEYS = (
    "evaluation_strategy", "eval_steps", "save_best_model_at_end", "metric_for_best_model", "greater_is_better"
)  # fmt: skip
"""Keys that the reference client moves from `[training.validation]` into the hyperparameters."""


@dataclass(frozen=True)
class SFTRequest:
    """What an SFT request asks for."""

    submitted: Json
    """The config as it came; for a request without one, that which its hyperparameters make."""
    toml: str | None
    raw: Json
    files: dict[str, str]
    """`training_file_id` and, when there is one, `validation_file_id`."""
    unread: tuple[str, ...]
    """Keys of the request that have no meaning here."""


def read_sft(payload: Json) -> SFTRequest:
    """Raises ConfigError where a part has the wrong kind or no training file is named."""
    submitted, toml = config_of(payload)
    raw = copy.deepcopy(submitted) or _from_hyperparameters(payload)
    if payload.get("model") is not None:
        section(raw, "job")["model"] = payload["model"]
    unread = tuple(key for key in payload if key not in _TOP)
    return SFTRequest(submitted or raw, toml, raw, _files(payload), unread)


def _files(payload: Json) -> dict[str, str]:
    training = text(payload, "training_file_id") or text(payload, "training_file")
    if not training:
        raise error("missing key training_file_id: upload the dataset with POST /files and give its id")
    validation = text(payload, "validation_file_id") or text(payload, "validation_file")
    validation = validation or _validation_file(payload)
    return {"training_file_id": training} | ({"validation_file_id": validation} if validation else {})


def _from_hyperparameters(payload: Json) -> Json:
    """The config behind a request that carries hyperparameters instead of a config."""
    effective = table(table(payload, "metadata"), "effective_config")
    training = dict(table(effective, "training"))
    given = {key: value for key, value in table(payload, "hyperparameters").items() if value is not None}
    moved = {key: given.pop(key) for key in _VALIDATION_KEYS if key in given}
    if moved or "validation" in training:
        training["validation"] = {**table(training, "validation"), **moved}
    raw: Json = {"hyperparameters": given, "training": training}
    if compute := table(effective, "compute"):
        raw["compute"] = compute
    if topology := table(table(effective, "data"), "topology"):
        raw["data"] = {"topology": topology}
    return raw


def _validation_file(payload: Json) -> str | None:
    """The file that the reference client names in the effective config."""
    files = table(table(table(payload, "metadata"), "effective_config"), "data").get("validation_files")
    return files[0] if isinstance(files, list) and files and isinstance(files[0], str) else None
