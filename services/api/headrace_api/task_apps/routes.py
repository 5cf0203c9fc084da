"""`POST /rl/verify_task_app`: do the stored environment keys open this task app, and does it reach the policy?"""

from __future__ import annotations

from fastapi import APIRouter

from headrace_api.deps import BackendsDep, CallerDep
from headrace_api.keys.service import open_keys
from headrace_api.task_apps import service
from headrace_api.task_apps.views import TaskAppAddress, Verification

router = APIRouter(tags=["task apps"])


@router.post("/rl/verify_task_app")
def verify_task_app(body: TaskAppAddress, backends: BackendsDep, caller: CallerDep) -> Verification:
    keys = open_keys(backends, caller.org_id)
    policy_url = body.policy_url or backends.settings.public_policy_url
    return service.verify(body.endpoint_base_url, keys, policy_url)
