"""What every config section has in common."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, BeforeValidator, ConfigDict


class Section(BaseModel):
    """A TOML table. Unknown keys are errors here; `load` reports them with the nearest valid key."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, frozen=True, allow_inf_nan=False)


Unused = Any
"""Type of a key that is accepted and has no effect, whatever its value; `not_used` holds the reasons."""

Lowered = BeforeValidator(lambda value: value.lower() if isinstance(value, str) else value)
"""For names that other clients write in capitals, too."""
