"""The reference of every config key, written from the models: `python -m headrace.config.reference`.

The text under a field is its documentation, so the page cannot drift from the code.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from headrace.config.evaluation import EvalConfig
from headrace.config.rl import RLConfig
from headrace.config.sft import SFTConfig

TITLES = {RLConfig: "RL jobs", SFTConfig: "SFT jobs", EvalConfig: "Evaluation jobs"}


def page() -> str:
    """Markdown of the whole reference."""
    lines = [
        "# Config reference",
        "",
        "Written from the code by `python -m headrace.config.reference`. An unknown key is an error that",
        "names the nearest valid one. A table marked *free* takes keys of your own.",
    ]
    for model, title in TITLES.items():
        lines += ["", f"## {title}"]
        for path, section in _sections(model, ()):
            lines += ["", *_table(path, section)]
    return "\n".join(lines) + "\n"


def _sections(
    model: type[BaseModel], at: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], type[BaseModel]]]:
    if _keys(model):
        yield at, model
    for name, field in model.model_fields.items():
        inner = _section_of(field)
        if inner is not None:
            yield from _sections(inner, (*at, name))


def _table(path: tuple[str, ...], model: type[BaseModel]) -> list[str]:
    heading = f"### `[{'.'.join(path)}]`" if path else "### Top level"
    rows = ["| key | type | default | meaning |", "| --- | --- | --- | --- |"]
    for name, field in _keys(model).items():
        meaning = " ".join((field.description or "").split()).replace("|", "\\|")
        rows.append(f"| `{name}` | {_type(field.annotation)} | {_default(field)} | {meaning} |")
    return [heading, "", *rows]


def _keys(model: type[BaseModel]) -> dict[str, FieldInfo]:
    return {name: field for name, field in model.model_fields.items() if _section_of(field) is None}


def _section_of(field: FieldInfo) -> type[BaseModel] | None:
    options = [option for option in (field.annotation, *get_args(field.annotation)) if option is not None]
    sections = [option for option in options if isinstance(option, type) and issubclass(option, BaseModel)]
    # `seeds` is a list or a small table: a value, not a section.
    is_value = any(get_origin(option) is tuple for option in options)
    return sections[0] if sections and not is_value else None


def _type(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return ", ".join(f"`{value!r}`".replace("'", '"') for value in arguments)
    if origin in (Union, UnionType):
        return " or ".join(_type(option) for option in arguments if option is not NoneType)
    if origin is Annotated:
        return _type(arguments[0])
    if origin is tuple:
        return f"list of {_type(arguments[0])}"
    if origin is dict:
        return "*free* table"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "table of " + ", ".join(f"`{name}`" for name in annotation.model_fields)
    return {"str": "text", "int": "integer", "float": "number", "bool": "true or false"}.get(
        annotation.__name__, annotation.__name__
    )


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "**required**"
    if field.default is None or field.default in ((), {}):
        return ""
    return f"`{field.default!r}`".replace("'", '"').replace("True", "true").replace("False", "false")


if __name__ == "__main__":
    print(page(), end="")
