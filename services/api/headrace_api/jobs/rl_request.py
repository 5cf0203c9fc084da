"""From the shapes of an RL request that are in use to one raw config.

A whole config under `data.config`; a small one with `data.trainer` and `data.job_config_id`; and a
flat one without `data`. What the request itself says wins over its config.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from headrace.config.notes import Replaced, shown
from headrace.config.paths import ABSENT, get, written
from headrace_api.jobs.request_tables import Json, config_of, error, section, table

_TOP = ("job_type", "strict", "allow_experimental", "metadata", "tags", "compute", "data")
_DATA = ("endpoint_base_url", "config", "config_toml", "base_model", "model", "trainer")


@dataclass(frozen=True)
class RLRequest:
    """What an RL request asks for."""

    submitted: Json
    """The config as it came."""
    toml: str | None
    raw: Json
    """The config with what the request says over it."""
    unread: tuple[str, ...]
    """Keys of the request that have no meaning here."""
    replaced: tuple[Replaced, ...]
    """Values of `trainer` that the config overrules."""


def read_rl(payload: Json, *, strict: bool) -> RLRequest:
    """Raises ConfigError where a part has the wrong kind, or (strict) contradicts the config."""
    is_flat = "data" not in payload
    data = payload if is_flat else table(payload, "data")
    submitted, toml = config_of(data)
    raw = copy.deepcopy(submitted)
    if data.get("endpoint_base_url") is not None:
        section(raw, "services")["task_url"] = data["endpoint_base_url"]
    _set_start(raw, data)
    if raw.get("compute") is None and table(payload, "compute"):
        raw["compute"] = copy.deepcopy(payload["compute"])
    replaced = _set_trainer(raw, table(data, "trainer"))
    if strict and replaced:
        one = replaced[0]
        raise error(f"{one.key} = {shown(one.value)} differs from {shown(one.used)}: {one.why}; keep one")
    unread = [f"data.{key}" if key in _TOP else key for key in data if key not in _DATA]
    if is_flat:
        unread = [key for key in payload if key not in (*_TOP, *_DATA)]
    else:
        unread += [key for key in payload if key not in _TOP]
    return RLRequest(submitted, toml, raw, tuple(unread), tuple(replaced))


def _set_start(raw: Json, data: Json) -> None:
    """The request's own model wins: the reference client does not rewrite the config for it."""
    if data.get("base_model") is None and data.get("model") is None:
        return
    start = section(raw, "model")
    start.pop("base", None)
    start.pop("source", None)
    key = "source" if data.get("model") is not None else "base"
    start[key] = data["model"] if key == "source" else data["base_model"]
    if isinstance(raw.get("policy"), dict):
        for name in ("model_name", "source"):
            raw["policy"].pop(name, None)


_SAME = {
    "batch_size": ("training.batch_size", "training.rollouts.prompts_per_iteration"),
    "group_size": ("training.group_size", "training.rollouts.rollouts_per_prompt"),
}
"""Keys of the config that say the same as one of `trainer`."""


def _set_trainer(raw: Json, trainer: Json) -> list[Replaced]:
    """Where the config is silent `trainer` speaks: that client always sends it, defaults included."""
    replaced = []
    for key, value in trainer.items():
        same = _SAME.get(key, (f"training.{key}",))
        said = next((name for name in same if get(raw, name) is not ABSENT), None)
        if said is None:
            section(raw, "training")[key] = value
        elif value is not None and not _is_same(get(raw, said), value):
            why = f"{written(said)} of the config means the same and wins"
            replaced.append(Replaced(f"trainer.{key}", value, get(raw, said), why))
    return replaced


def _is_same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and a == b
