"""The contract's routes over a task app. The only module here that needs FastAPI."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, FastAPI, Query, Request
from fastapi.responses import JSONResponse, Response

from headrace.errors import HeadraceError
from headrace.task_app import auth
from headrace.task_app.episode import EnvironmentFailed
from headrace.task_app.reach import Reached, Where, reach
from headrace.task_app.wire import RolloutRequest

if TYPE_CHECKING:
    from headrace.task_app.app import TaskApp

VENDOR_KEYS = ("OPENAI_API_KEY", "GROQ_API_KEY")
"""Keys of other services that an environment may use; only prefixes are ever told."""
MAX_SEEDS = 1000
"""Seeds that one `/task_info` request may ask for."""


def _app(request: Request) -> TaskApp:
    return request.app.state.task_app


def authorized(request: Request) -> TaskApp:
    """The task app, for a caller that may use it."""
    app = _app(request)
    if app.auth == "none":
        if not auth.is_loopback(request.client.host if request.client else None):
            raise auth.KeyRefused('this app runs with auth = "none" and answers its own machine only')
    else:
        auth.check(request.headers, auth.valid_keys())
    return app


Authorized = Annotated[Any, Depends(authorized)]


def build(task_app: TaskApp) -> FastAPI:
    """The FastAPI application of a task app."""
    api = FastAPI(title=task_app.name, version=task_app.version)
    api.state.task_app = task_app
    api.add_exception_handler(HeadraceError, _error_response)
    api.add_api_route("/", _root, methods=["GET", "HEAD"])
    api.add_api_route("/health", _health, methods=["GET"])
    api.add_api_route("/info", _info, methods=["GET"])
    api.add_api_route("/task_info", _task_info, methods=["GET"])
    api.add_api_route("/rollout", _rollout, methods=["POST"])
    api.add_api_route("/done", _done, methods=["POST"])
    api.add_api_route("/debug/env", _debug_env, methods=["GET"])
    api.add_api_route("/reach", _reach, methods=["POST"])
    return api


async def _error_response(_: Request, error: Exception) -> Response:
    assert isinstance(error, HeadraceError)
    body = {"code": error.code, "message": error.message, **error.details}
    return JSONResponse({"detail": {"error": body}}, status_code=error.status)


async def _root(request: Request) -> dict[str, str]:
    return {"status": "ok", "service": _app(request).task_id}


async def _health(app: Authorized) -> dict[str, Any]:
    keys = auth.valid_keys()
    is_required = app.auth != "none"
    prefix = f"{auth.shown(keys[0], 6)}..." if is_required and keys else None
    return {"healthy": True, "auth": {"required": is_required, "expected_prefix": prefix}}


async def _info(app: Authorized) -> dict[str, Any]:
    facts = app.task_info(app.taskset()["default_seed"])
    return {
        "service": {"task": facts["task"], "version": app.version},
        "dataset": facts["dataset"],
        "rubrics": facts["rubric"],
        "inference": facts["inference"],
        "limits": facts["limits"],
    }


async def _task_info(
    app: Authorized,
    seed: Annotated[list[int] | None, Query(max_length=MAX_SEEDS)] = None,
    seeds: Annotated[list[int] | None, Query(max_length=MAX_SEEDS)] = None,
) -> Any:
    """Without a seed the taskset; with one its TaskInfo; with several a list of them."""
    asked = [*(seed or ()), *(seeds or ())]
    if not asked:
        return {"taskset": app.taskset()}
    infos = [app.task_info(one) for one in asked]
    return infos[0] if len(infos) == 1 else infos


async def _rollout(app: Authorized, request: RolloutRequest) -> Response:
    answer = await app.rollout(request)
    try:
        body = json.dumps(answer, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
    except (TypeError, ValueError) as error:
        raise EnvironmentFailed(f"an observation or info of the environment is not JSON: {error}") from error
    return Response(body, media_type="application/json")


async def _done(app: Authorized) -> dict[str, Any]:
    return {"ok": True, "service": app.task_id}


async def _debug_env(app: Authorized) -> dict[str, Any]:
    """Which keys this process has, as prefixes; for finding out why a key is refused."""
    return {
        "has_ENVIRONMENT_API_KEY": bool(auth.valid_keys()),
        **{f"{name}_prefix": auth.shown(os.environ.get(name, ""), 4) or None for name in VENDOR_KEYS},
    }


async def _reach(app: Authorized, where: Where) -> Reached:
    """Whether this machine reaches a policy, as each episode will have to."""
    return await reach(where.url)
