"""`POST /rl/verify_task_app`: can the stored environment keys open this task app?"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

from headrace_api.deps import BackendsDep, CallerDep
from headrace_api.keys.service import open_keys
from headrace_api.task_apps import service

router = APIRouter(tags=["task apps"])


class TaskAppAddress(BaseModel):
    endpoint_base_url: str


class Verification(BaseModel):
    any_ok: bool
    candidates_first15: int
    """How many keys were tried; none is ever shown."""
    attempts: list[dict[str, Any]]


@router.post("/rl/verify_task_app")
def verify_task_app(body: TaskAppAddress, backends: BackendsDep, caller: CallerDep) -> Verification:
    keys = open_keys(backends, caller.org_id)
    attempts = service.verify(body.endpoint_base_url, keys)
    return Verification(
        any_ok=any(attempt["ok"] for attempt in attempts), candidates_first15=len(keys), attempts=attempts
    )
