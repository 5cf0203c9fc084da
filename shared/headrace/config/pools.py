"""Pools: named machines, and the topologies (ways to use them) that a job may ask for.

A pool is a Celery queue, a list of waiting jobs and a policy. The table ships with the package.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Literal

from pydantic import Field

from headrace.config.base import Section
from headrace.errors import ConfigError


class Topology(Section):
    """`[pools.<name>.topologies.<id>]`: one way to use a pool."""

    device: Literal["cpu", "cuda"]
    """Where the trainer computes."""
    dtype: Literal["float32", "bfloat16"]
    """Number format of trainer and engine."""
    rollout_slots: int = Field(ge=1)
    """Rollouts that the pool's workers play at once."""
    engine_args: tuple[str, ...] = ()
    """Further arguments of the vLLM engine."""


class Pool(Section):
    """`[pools.<name>]`."""

    description: str
    default_topology: str
    """The topology of a job that names none."""
    topologies: dict[str, Topology]
    max_rollouts_per_iteration: int = Field(ge=1)
    """A job that plans more (prompts x rollouts per prompt) is refused."""
    max_deadline_s: float = Field(gt=0)
    """A job whose rollouts may take longer is refused."""


class _Table(Section):
    pools: dict[str, Pool] = Field(min_length=1)


@cache
def pools() -> dict[str, Pool]:
    """Every pool by name; the first is the default."""
    text = (files("headrace.config") / "pools.toml").read_text()
    return _Table.model_validate(tomllib.loads(text)).pools


def find_pool(name: str | None) -> tuple[str, Pool]:
    """The pool of that name, or the default one; raises ConfigError that names the known pools."""
    known = pools()
    name = name or next(iter(known))
    if name not in known:
        raise _unknown("[backend] compute_pool", name, "pools", known)
    return name, known[name]


def find_topology(pool: Pool, topology_id: str | None) -> tuple[str, Topology]:
    """The topology of that id, or the pool's default; raises ConfigError that names the known ones."""
    topology_id = topology_id or pool.default_topology
    if topology_id not in pool.topologies:
        raise _unknown("[backend] topology_id", topology_id, "topologies of this pool", pool.topologies)
    return topology_id, pool.topologies[topology_id]


def _unknown(key: str, value: str, what: str, known: dict) -> ConfigError:
    sentence = f"{key} = {value!r} is not known; {what}: {', '.join(known)}"
    return ConfigError(sentence, problems=[sentence])
