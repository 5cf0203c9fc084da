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
    gpu_types: tuple[str, ...] = ()
    """Values of `[compute] gpu_type` that mean this pool: `"H100"`, or `"H100x8"` for that `gpu_count` alone."""


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


def pool_for(gpu_type: str, gpu_count: int | None) -> str | None:
    """The pool whose `gpu_types` name the devices, one that names their count first; None when none does."""
    for wanted in (f"{gpu_type}x{gpu_count}".lower(), gpu_type.lower()):
        for name, pool in pools().items():
            if wanted in (known.lower() for known in pool.gpu_types):
                return name
    return None


def find_topology(pool: Pool, topology_id: str | None) -> tuple[str, Topology]:
    """The topology of that id, or the pool's default; raises ConfigError that names the known ones."""
    topology_id = topology_id or pool.default_topology
    if topology_id not in pool.topologies:
        raise _unknown("[backend] topology_id", topology_id, "topologies of this pool", pool.topologies)
    return topology_id, pool.topologies[topology_id]


def refuse_beyond(pool_name: str, pool: Pool, *, planned: tuple[int, int] | None, deadline_s: float) -> None:
    """Raise ConfigError when a job is more than the pool takes. `planned` is prompts and rollouts per prompt."""
    if planned is not None and planned[0] * planned[1] > pool.max_rollouts_per_iteration:
        prompts, members = planned
        raise _error(
            f"prompts x rollouts per prompt is {prompts} x {members} = {prompts * members}, above the "
            f"{pool.max_rollouts_per_iteration} rollouts per iteration of pool {pool_name!r}; plan fewer"
        )
    if deadline_s > pool.max_deadline_s:
        raise _error(
            f"deadline_s = {deadline_s:g} is above the {pool.max_deadline_s:g} s of pool {pool_name!r}; lower it"
        )


def _unknown(key: str, value: str, what: str, known: dict) -> ConfigError:
    return _error(f"{key} = {value!r} is not known; {what}: {', '.join(known)}")


def _error(sentence: str) -> ConfigError:
    return ConfigError(sentence, problems=[sentence])
