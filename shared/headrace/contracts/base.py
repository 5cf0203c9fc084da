"""What every contract has in common, and token arrays as bytes."""

from __future__ import annotations

import base64
from array import array
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, GetPydanticSchema
from pydantic_core import core_schema


class Contract(BaseModel):
    """A frozen message between our own services: an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


def _array_schema(typecode: str, name: str) -> Any:
    """Schema of a one-dimensional array: JSON holds `{dtype, shape, data}` with base64 of its bytes."""

    def load(value: Any) -> array:
        if isinstance(value, array):
            if value.typecode != typecode:
                raise ValueError(f"expected {name} array, got typecode {value.typecode!r}")
            return value
        if isinstance(value, dict):
            if value.get("dtype") != name:
                raise ValueError(f"expected dtype {name!r}, got {value.get('dtype')!r}")
            loaded = array(typecode)
            loaded.frombytes(base64.b64decode(value["data"], validate=True))
            if [len(loaded)] != list(value["shape"]):
                raise ValueError(f"shape {value['shape']} does not match {len(loaded)} values")
            return loaded
        if isinstance(value, Iterable) and not isinstance(value, str | bytes):
            return array(typecode, value)
        raise ValueError(f"expected {name} array")

    def dump(value: array) -> dict[str, object]:
        return {"dtype": name, "shape": [len(value)], "data": base64.b64encode(value.tobytes()).decode()}

    return core_schema.no_info_plain_validator_function(
        load, serialization=core_schema.plain_serializer_function_ser_schema(dump, when_used="json")
    )


TokenIds = Annotated[array, GetPydanticSchema(lambda _s, _h: _array_schema("i", "int32"))]
"""Token ids, int32, shape (n,)."""
Logprobs = Annotated[array, GetPydanticSchema(lambda _s, _h: _array_schema("d", "float64"))]
"""Natural-log probabilities as the engine returned them, float64, shape (n,)."""


def token_ids(values: Iterable[int] = ()) -> array:
    return array("i", values)


def logprobs(values: Iterable[float] = ()) -> array:
    return array("d", values)
