"""What every config section has in common."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A TOML table. Unknown keys are errors here; `load` reports them with the nearest valid key."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, frozen=True)


def keys_present(config: BaseModel, keys: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the dotted keys that the user's config sets."""
    return tuple(key for key in keys if _is_set(config, key.split(".")))


def _is_set(section: BaseModel, path: list[str]) -> bool:
    name, *deeper = path
    value = getattr(section, name)
    if name not in section.model_fields_set or value is None:
        return False
    return _is_set(value, deeper) if deeper else True


def refuse_difference(names: str, *values: Any) -> None:
    """Raise ValueError when keys of one meaning (None: not set) differ."""
    given = {value for value in values if value is not None}
    if len(given) > 1:
        raise ValueError(
            f"{names} mean the same and differ ({' and '.join(map(str, sorted(given)))}); keep one"
        )
