"""The API as its clients see it, over real HTTP, with state that a test sets and changes while it runs."""

from __future__ import annotations

import json
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

from headrace.errors import Conflict, HeadraceError, NotFound, Unauthorized

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
    rewards: dict[str, list[Json]] = field(default_factory=dict)
    runs: dict[str, list[Json]] = field(default_factory=dict)
    clones: dict[str, Json] = field(default_factory=dict)
    """By idempotency key."""
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


def _lines(rows: list[Json]) -> Response:
    return Response("".join(json.dumps(row) + "\n" for row in rows), media_type="application/x-ndjson")


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
        data = {name[5:]: value for name, value in query.items() if name.startswith("data.")}
        found = [
            job
            for job in state.jobs.values()
            if all(job[name] == value for name, value in wanted.items())
            and all(str(job["tags"].get(name)) == value for name, value in tags.items())
            and all(str(job["data"].get(name)) == value for name, value in data.items())
        ]
        found.sort(key=lambda job: job["created_at"], reverse=True)
        ids = [job["job_id"] for job in found]
        start = ids.index(query["after"]) + 1 if query.get("after") else 0
        return {"jobs": found[start : start + limit], "has_more": len(found) > start + limit}

    @router.get("/jobs/{job_id}")
    def job(job_id: str) -> Json:
        return state.job(job_id)

    @router.post("/jobs/{job_id}/cancel")
    def cancel(job_id: str) -> Json:
        state.job(job_id)["cancel_requested"] = True
        return state.job(job_id)

    @router.post("/jobs/{job_id}/resume")
    def resume(job_id: str) -> Json:
        if state.job(job_id)["status"] not in ("failed", "cancelled"):
            raise Conflict(f"job {job_id} is {state.job(job_id)['status']}; only an ended job is resumed")
        state.job(job_id).update(status="queued", error=None, cancel_requested=False)
        return state.job(job_id)

    @router.post("/jobs/{job_id}/clone")
    async def clone(job_id: str, request: Request) -> Json:
        key = (await request.json())["idempotency_key"]
        if key not in state.clones:
            new_id = f"job_clone{len(state.clones)}"
            state.clones[key] = state.job(job_id) | {"job_id": new_id, "status": "queued"}
            state.jobs[new_id] = state.clones[key]
        return state.clones[key]

    @router.get("/jobs/{job_id}/runs")
    def runs(job_id: str) -> Json:
        job = state.job(job_id)
        only = {"run_number": 1, "status": job["status"], "created_at": job["created_at"],
                "started_at": job["started_at"], "ended_at": job["finished_at"]}  # fmt: skip
        return {"runs": state.runs.get(job_id, [only])}

    @router.get("/jobs/{job_id}/events", response_model=None)
    def events(job_id: str, since_seq: int = 0, limit: int = 200, format: str = "json") -> Json | Response:
        state.job(job_id)
        found = [e for e in state.events.get(job_id, []) if e["seq"] > since_seq]
        return _lines(found) if format == "jsonl" else {"events": found[:limit]}

    @router.get("/jobs/{job_id}/metrics", response_model=None)
    def metrics(
        job_id: str, after_step: int = -1, limit: int = 5000, name: str | None = None, format: str = "json"
    ) -> Json | Response:
        state.job(job_id)
        rows = [
            p for p in state.points.get(job_id, []) if p["step"] > after_step and name in (None, p["name"])
        ]
        rows.sort(key=lambda p: (p["step"], p["name"]))
        return _lines(rows) if format == "jsonl" else {"job_id": job_id, "points": rows[:limit]}

    @router.get("/jobs/{job_id}/rewards", response_model=None)
    def rewards(
        job_id: str, purpose: str = "train", after_step: int = -1, limit: int = 200, format: str = "json"
    ) -> Json | Response:
        state.job(job_id)
        rows = [r for r in state.rewards.get(job_id, []) if r["iteration"] > after_step]
        rows = [r for r in rows if r["purpose"] == purpose]
        if format == "jsonl":
            return _lines(rows)
        return {"job_id": job_id, "purpose": purpose, "rewards": rows[:limit], "has_more": len(rows) > limit}

    @router.get("/jobs/{job_id}/checkpoints")
    def checkpoints(job_id: str) -> Json:
        return {"checkpoints": state.checkpoints.get(job_id, [])}

    @router.get("/jobs/{job_id}/config")
    def config(job_id: str) -> Json:
        return state.configs.get(job_id, {"submitted": {}, "toml": None, "resolved": {}})

    return router


def _rollouts(state: FakeApi) -> APIRouter:
    router = APIRouter()

    @router.get("/jobs/{job_id}/rollouts", response_model=None)
    def rollouts(
        job_id: str,
        purpose: str | None = None,
        iteration: int | None = None,
        status: str | None = None,
        limit: int = 100,
        offset: int = 0,
        format: str = "json",
    ) -> Json | Response:
        state.job(job_id)
        wanted = {"purpose": purpose, "iteration": iteration, "status": status}
        found = [
            one["rollout"]
            for one in state.rollouts.values()
            if one["rollout"]["job_id"] == job_id
            and all(value is None or one["rollout"][name] == value for name, value in wanted.items())
        ]
        if format == "jsonl":
            return _lines(found)
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
