"""Walking the config models: their keys, and where a raw config departs from them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from headrace.config.evaluation import EvalConfig
from headrace.config.paths import Path, Raw
from headrace.config.rl import RLConfig
from headrace.config.sft import SFTConfig
from headrace.contracts.job import JobType

JobConfig = RLConfig | SFTConfig | EvalConfig
MODELS: dict[JobType, type[JobConfig]] = {
    JobType.RL: RLConfig, JobType.SFT: SFTConfig, JobType.EVAL: EvalConfig
}  # fmt: skip


@dataclass(frozen=True)
class Key:
    """A key of a config model that is no section."""

    path: Path
    field: FieldInfo

    @property
    def name(self) -> str:
        """Dotted."""
        return ".".join(self.path)


def sections(model: type[BaseModel], at: Path = ()) -> Iterator[tuple[Path, type[BaseModel]]]:
    """Every section of a model, itself first."""
    yield at, model
    for name, field in model.model_fields.items():
        if (inner := section_of(field)) is not None:
            yield from sections(inner, (*at, name))


def keys(job_type: JobType) -> Iterator[Key]:
    """Every key of a job type's config."""
    for at, section in sections(MODELS[job_type]):
        for name, field in section.model_fields.items():
            if section_of(field) is None:
                yield Key((*at, name), field)


def section_of(field: FieldInfo) -> type[BaseModel] | None:
    """The section that a field holds; None for a value (`seeds` is a list or a small table: a value)."""
    options = [option for option in (field.annotation, *get_args(field.annotation)) if option is not None]
    found = [option for option in options if isinstance(option, type) and issubclass(option, BaseModel)]
    is_value = any(get_origin(option) is tuple for option in options)
    return found[0] if found and not is_value else None


def table_of(field: FieldInfo) -> type[BaseModel] | None:
    """The model of a field that may be a table, a value's (`seeds`) included."""
    for candidate in (field.annotation, *get_args(field.annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def unknown_keys(raw: Raw, model: type[BaseModel], at: Path = ()) -> Iterator[tuple[Path, list[str]]]:
    """Each key that the model does not have, with the valid names beside it."""
    for key, value in raw.items():
        field = model.model_fields.get(key)
        if field is None:
            if model.model_config.get("extra") != "allow":
                yield (*at, key), list(model.model_fields)
        elif isinstance(value, dict) and (inner := table_of(field)) is not None:
            yield from unknown_keys(value, inner, (*at, key))


def without_keys(raw: Raw, paths: list[Path]) -> Raw:
    """A copy without these keys."""
    here = {path[0] for path in paths if len(path) == 1}
    kept = {}
    for key, value in raw.items():
        if key in here:
            continue
        deeper = [path[1:] for path in paths if len(path) > 1 and path[0] == key]
        kept[key] = without_keys(value, deeper) if deeper else value
    return kept


def without_nulls(raw: Raw, model: type[BaseModel]) -> Raw:
    """A copy in which a key that is null is absent; free tables keep theirs."""
    kept: dict[str, Any] = {}
    for key, value in raw.items():
        field = model.model_fields.get(key)
        if value is None and field is not None:
            continue
        inner = table_of(field) if field is not None else None
        kept[key] = without_nulls(value, inner) if inner is not None and isinstance(value, dict) else value
    return kept
