"""Words for a key: its type, its default, its meaning, and what it does."""

from __future__ import annotations

import json
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo


def type_of(annotation: Any) -> str:
    """The type as a person would write it into a table; names in backquotes."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation is Any:
        return "anything"
    if annotation is NoneType:
        return "nothing"
    if origin is Literal:
        return ", ".join(f"`{json.dumps(value)}`" for value in arguments)
    if origin in (Union, UnionType):
        return " or ".join(type_of(option) for option in arguments if option is not NoneType)
    if origin is Annotated:
        return type_of(arguments[0])
    if origin is tuple:
        return f"list of {type_of(arguments[0])}" if arguments else "empty list"
    if origin is dict:
        return "*free* table"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "table of " + ", ".join(f"`{name}`" for name in annotation.model_fields)
    return {"str": "text", "int": "integer", "float": "number", "bool": "true or false"}.get(
        annotation.__name__, annotation.__name__
    )


def bounds_of(field: FieldInfo) -> str:
    """`, at least 1, below 2`, or nothing."""
    words = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    found = [
        f"{word} {getattr(rule, name):g}" if isinstance(getattr(rule, name), float)
        else f"{word} {getattr(rule, name)}"
        for rule in field.metadata
        for name, word in words.items()
        if getattr(rule, name, None) is not None
    ]  # fmt: skip
    return "".join(f", {one}" for one in found)


def default_of(field: FieldInfo) -> str:
    """The default as TOML would have it; nothing where the key is absent by default."""
    if field.is_required() or field.default is None or field.default in ((), {}):
        return ""
    return json.dumps(field.default, default=str)


def meaning_of(field: FieldInfo) -> str:
    return " ".join((field.description or "").split())
