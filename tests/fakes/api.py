"""The API as its clients see it, over real HTTP, with state that a test sets and changes while it runs."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from fastapi import APIRouter, FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from headrace.errors import HeadraceError, NotFound, Unauthorized

Json = dict[str, Any]

KEY = "hr_key-of-the-owner"


@dataclass
class FakeApi:
    """What the fake server answers with. Everything is plain JSON, as the API gives it."""

    keys: set[str] = field(default_factory=lambda: {KEY})
    jobs: dict[str, Json] = field(default_factory=dict)
    events: dict[str, list[Json]] = field(default_factory=dict)
    points: dict[str, list[Json]] = field(default_factory=dict)
    checkpoints: dict[str, list[Json]] = field(default_factory=dict)
    configs: dict[str, Json] = field(default_factory=dict)
    rollouts: dict[str, Json] = field(default_factory=dict)
    """By rollout id: `{rollout, attempts, event_rewards, trajectory}`."""
    broken: HeadraceError | None = None
    """Every request is refused with it while it is set."""
    url: str = ""
    n_requests: dict[str, int] = field(default_factory=dict)
    """Requests by path."""

    def job(self, job_id: str) -> Json:
        if job_id not in self.jobs:
            raise NotFound(f"there is no job {job_id}")
        return self.jobs[job_id]

    def add_points(self, job_id: str, step: int, **values: float) -> None:
        """Write the metrics of a step; `reward_mean` stands for `reward.mean`."""
        rows = [
            {"name": name.replace("_", ".", 1), "step": step, "value": value, "phase": None}
            for name, value in sorted(values.items())
        ]
        self.points.setdefault(job_id, []).extend(rows)

    def add_event(self, job_id: str, type: str, message: str, level: str = "info") -> None:
        rows = self.events.setdefault(job_id, [])
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        row = {"seq": len(rows) + 1, "type": type, "message": message, "level": level, "created_at": at}
        rows.append({**row, "data": {}, "job_id": job_id})


def create_app(state: FakeApi) -> FastAPI:
    app = FastAPI()

    @app.middleware("http")
    async def guard(request: Request, call_next: Any) -> Response:
        path = request.url.path.removeprefix("/api/v1")
        state.n_requests[path] = state.n_requests.get(path, 0) + 1
        if state.broken:
            return _refusal(state.broken)
        key = request.headers.get("authorization", "").removeprefix("Bearer ")
        if path not in ("/ready", "/health") and key not in state.keys:
            return _refusal(Unauthorized("the API key is not known"))
        return await call_next(request)

    app.add_exception_handler(HeadraceError, lambda request, error: _refusal(error))
    app.include_router(_jobs(state), prefix="/api/v1")
    app.include_router(_rollouts(state), prefix="/api/v1")
    return app


def _refusal(error: Any) -> JSONResponse:
    body = {"error": {"code": error.code, "message": error.message}, "detail": error.message}
    return JSONResponse(body, status_code=error.status)


def _jobs(state: FakeApi) -> APIRouter:
    router = APIRouter()

    @router.get("/ready")
    @router.get("/health")
    def ready() -> Json:
        return {"status": "ok"}

    @router.get("/jobs")
    def jobs(request: Request, limit: int = 50) -> Json:
        query = request.query_params
        names = ("type", "status", "pool", "model")
        wanted = {name: query[name] for name in names if name in query}
        tags = dict(tag.split(":", 1) for tag in query.getlist("tag"))
        found = [
            job
            for job in state.jobs.values()
            if all(job[name] == value for name, value in wanted.items())
            and all(str(job["tags"].get(name)) == value for name, value in tags.items())
        ]
        return {"jobs": sorted(found, key=lambda job: job["created_at"], reverse=True)[:limit]}

    @router.get("/jobs/{job_id}")
    def job(job_id: str) -> Json:
        return state.job(job_id)

    @router.post("/jobs/{job_id}/cancel")
    def cancel(job_id: str) -> Json:
        state.job(job_id)["cancel_requested"] = True
        return state.job(job_id)

    @router.get("/jobs/{job_id}/events")
    def events(job_id: str, since_seq: int = 0, limit: int = 200) -> Json:
        state.job(job_id)
        return {"events": [e for e in state.events.get(job_id, []) if e["seq"] > since_seq][:limit]}

    @router.get("/jobs/{job_id}/metrics")
    def metrics(job_id: str, after_step: int = -1, limit: int = 5000, name: str | None = None) -> Json:
        state.job(job_id)
        rows = [
            p for p in state.points.get(job_id, []) if p["step"] > after_step and name in (None, p["name"])
        ]
        return {"job_id": job_id, "points": sorted(rows, key=lambda p: (p["step"], p["name"]))[:limit]}

    @router.get("/jobs/{job_id}/checkpoints")
    def checkpoints(job_id: str) -> Json:
        return {"checkpoints": state.checkpoints.get(job_id, [])}

    @router.get("/jobs/{job_id}/config")
    def config(job_id: str) -> Json:
        return state.configs.get(job_id, {"submitted": {}, "toml": None, "resolved": {}})

    return router


def _rollouts(state: FakeApi) -> APIRouter:
    router = APIRouter()

    @router.get("/jobs/{job_id}/rollouts")
    def rollouts(
        job_id: str,
        purpose: str | None = None,
        iteration: int | None = None,
        status: str | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> Json:
        state.job(job_id)
        wanted = {"purpose": purpose, "iteration": iteration, "status": status}
        found = [
            one["rollout"]
            for one in state.rollouts.values()
            if one["rollout"]["job_id"] == job_id
            and all(value is None or one["rollout"][name] == value for name, value in wanted.items())
        ]
        return {"rollouts": found[offset : offset + limit], "total": len(found)}

    @router.get("/rollouts/{rollout_id}")
    def rollout(rollout_id: str) -> Json:
        if rollout_id not in state.rollouts:
            raise NotFound(f"there is no rollout {rollout_id}")
        return state.rollouts[rollout_id]

    return router


@contextmanager
def serving(state: FakeApi, port: int = 0) -> Iterator[FakeApi]:
    """The fake on a loopback port of its own (or the given one), until the block ends."""
    listener = socket.create_server(("127.0.0.1", port))
    server = uvicorn.Server(
        uvicorn.Config(create_app(state), log_level="error", timeout_graceful_shutdown=1, lifespan="off")
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        yield state
    finally:
        server.should_exit = True
        thread.join(timeout=10)
        listener.close()
