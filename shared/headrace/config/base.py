"""What every config section has in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A TOML table. Unknown keys are errors here; `load` reports them with the nearest valid key."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, frozen=True)
