"""`headrace config schema`: a JSON Schema by which editors complete and check a config file."""

from __future__ import annotations

from typing import Any

from headrace.config.not_used import reason
from headrace.config.walk import MODELS
from headrace.contracts.job import JobType

_TITLES = {JobType.RL: "RL job", JobType.SFT: "SFT job", JobType.EVAL: "evaluation job"}


def json_schema(job_type: JobType) -> dict[str, Any]:
    """JSON Schema (2020-12) of a job type's config file.

    What the command line may add (task app, model, dataset) is not required of a file. Keys without
    effect are marked deprecated, with their reasons.
    """
    schema = MODELS[JobType(job_type)].model_json_schema()
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": f"Headrace config of an {_TITLES[job_type]}",
    }
    definitions = schema.get("$defs", {})
    for part in (schema, *(definitions.values())):
        part.pop("required", None)
    _mark(job_type, schema, definitions, ())
    return schema


def _mark(job_type: JobType, part: dict[str, Any], definitions: dict[str, Any], at: tuple[str, ...]) -> None:
    for name, field in part.get("properties", {}).items():
        why = reason(job_type, ".".join((*at, name)))
        if why is not None:
            field |= {"deprecated": True, "description": f"Accepted, not used: {why}."}
        elif (inner := _definition(field, definitions)) is not None:
            _mark(job_type, inner, definitions, (*at, name))


def _definition(field: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any] | None:
    for option in (field, *field.get("anyOf", ()), *field.get("allOf", ())):
        if "$ref" in option:
            return definitions[option["$ref"].rpartition("/")[2]]
    return None
