"""`GET /pools`: where a job may run, and how large it may be there."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel

from headrace.config.pools import pools as known_pools

router = APIRouter(tags=["pools"])


class PoolView(BaseModel):
    name: str
    description: str
    default_topology: str
    topologies: list[str]
    max_rollouts_per_iteration: int
    max_deadline_s: float


class PoolList(BaseModel):
    pools: list[PoolView]
    """The first is the default."""


@router.get("/pools")
def list_pools() -> PoolList:
    return PoolList(
        pools=[
            PoolView(
                name=name,
                **pool.model_dump(exclude={"topologies", "gpu_types"}),
                topologies=[*pool.topologies],
            )
            for name, pool in known_pools().items()
        ]
    )
