"""From TOML text or a JSON object to a validated config, with errors that a person can act on.

Strict loading (our own command) refuses an unknown key and names the nearest valid one, values that do
not act, and keys of one meaning that differ. Lenient loading (other clients' payloads) leaves unknown
keys out, lets what acts take the place of what does not, and has a note on each such decision.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from headrace.config import not_used, notes, refused, sentences, synonyms
from headrace.config.fill import filled, without_effect
from headrace.config.infer import infer_type
from headrace.config.notes import Note, Replaced
from headrace.config.paths import ABSENT, Raw, dotted, get, with_value, without, written
from headrace.config.walk import MODELS, JobConfig, unknown_keys, without_keys, without_nulls
from headrace.config.warnings import warnings
from headrace.contracts.job import JobType
from headrace.errors import ConfigError

__all__ = ["JobConfig", "Loaded", "infer_type", "load", "parse_toml"]


@dataclass(frozen=True)
class Loaded:
    """A validated config and what there is to say about it."""

    config: JobConfig
    ignored: tuple[str, ...]
    """Unknown keys that were left out (lenient loading only)."""
    notes: tuple[Note, ...] = ()


def parse_toml(text: str, name: str) -> dict[str, Any]:
    """Parse TOML; raises ConfigError with the line of the fault."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise sentences.refusal([f"{name} is not valid TOML: it nests too deep"]) from None
    except ValueError as error:
        raise sentences.refusal([f"{name} is not valid TOML: {error}"]) from error


def load(raw: dict[str, Any], job_type: JobType, *, strict: bool) -> Loaded:
    """Validate `raw`; raises ConfigError that lists every problem, one sentence each."""
    model = MODELS[job_type]
    unknown = list(unknown_keys(raw, model))
    kept = without_nulls(without_keys(raw, [path for path, _ in unknown]), model)
    problems: list[str] = []
    replaced: list[Replaced] = []
    if strict:
        problems = [sentences.of_unknown(path, valid) for path, valid in unknown]
        kept, refusals = refused.refuse(job_type, kept)
        found = synonyms.differences(job_type, kept)
        problems += [*refusals, *(difference.sentence for difference in found)]
    else:
        kept, replaced = _settled(job_type, kept)
    unused = not_used.present(job_type, kept)
    config = _validated(_with_loss(_with_start(kept)), job_type, problems)
    unused |= {written(key): why for key, why in without_effect(config).items()}
    config, placed = filled(config, job_type)
    ignored = tuple(dotted(path) for path, _ in unknown)
    return Loaded(
        config,
        ignored,
        (
            *(decision.note(job_type) for decision in replaced),
            *notes.ignored(job_type, ignored),
            *notes.not_used(job_type, unused),
            *placed,
            *warnings(config),
        ),
    )


def _settled(job_type: JobType, raw: Raw) -> tuple[Raw, list[Replaced]]:
    raw, values = refused.replace(job_type, raw)
    raw, tags = _plain_tags(raw)
    raw, keys = synonyms.settle(job_type, raw)
    return raw, [*values, *tags, *keys]


def _plain_tags(raw: Raw) -> tuple[Raw, list[Replaced]]:
    """Other clients' tags may hold lists and tables."""
    tags, replaced = get(raw, "tags"), []
    if isinstance(tags, dict):
        for name, value in tags.items():
            if not isinstance(value, str | int | float | bool):
                why = "tags are plain values, by which jobs are found"
                replaced.append(Replaced(dotted(("tags", name)), value, None, why))
        left_out = {one.key for one in replaced}
        raw = {**raw, "tags": {k: v for k, v in tags.items() if dotted(("tags", k)) not in left_out}}
    return raw, replaced


def _with_start(raw: Raw) -> Raw:
    """`[policy] model_name` and `source` of newer clients, where they belong. `[model]`, if there, agrees."""
    named = {ours: get(raw, key) for key, ours in _POLICY_STARTS.items()}
    has_model = any(get(raw, key) is not ABSENT for key in named)
    for key in _POLICY_STARTS:
        raw = without(raw, key)
    for ours, value in named.items():
        if value is not ABSENT and not has_model and isinstance(raw.get("model", {}), dict):
            raw = with_value(raw, ours, value)
    return raw


_POLICY_STARTS = {"policy.model_name": "model.base", "policy.source": "model.source"}


def _with_loss(raw: Raw) -> Raw:
    """`[algorithm] variety = "gspo"` and `[training] kl`, under the keys that act."""
    variety, kl = get(raw, "algorithm.variety"), get(raw, "training.kl")
    if isinstance(variety, str) and variety.lower() == "gspo":
        for key, value in {"training.loss": "gspo", "training.normalization": "sequence"}.items():
            raw = with_value(raw, key, value) if get(raw, key) is ABSENT else raw
    if kl is not ABSENT:
        raw = with_value(without(raw, "training.kl"), "training.kl_coef", kl)
    return raw


def _validated(raw: Raw, job_type: JobType, problems: list[str]) -> JobConfig:
    try:
        config = MODELS[job_type].model_validate(raw)
    except ValidationError as error:
        raise sentences.refusal([*problems, *sentences.of_validation(error)]) from None
    except RecursionError:
        raise ConfigError("the config nests too deep", problems=["the config nests too deep"]) from None
    if problems:
        raise sentences.refusal(problems)
    return config
