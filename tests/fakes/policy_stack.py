"""A gateway process in a test: started, given a slot's desired state, and spoken to over HTTP."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import redis

from headrace import ids
from headrace.artifacts.model_folder import architecture_hash
from headrace.contracts.policy import (
    CapturedSession,
    EngineState,
    PolicyStatus,
    PolicyVersion,
    Sampling,
    ServeSpec,
    SessionOpen,
)
from headrace.queue import names
from headrace.queue.slots import SlotClaim

WORKER, TRAINER = "worker-token", "trainer-token"
JOB, TIMELINE = "job_test", 1


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class PolicyStack:
    """One gateway process (`module`) with its engine, on free ports, and a claim on its slot."""

    def __init__(self, home: Path, redis_url: str, module: str, pool: str | None = None) -> None:
        self.home, self.module = home, module
        self.engine_port, port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.engine_url = f"http://127.0.0.1:{self.engine_port}"
        self.redis = redis.Redis.from_url(redis_url)
        self.pool = pool or f"pool-{port}"
        self._environment = os.environ | {
            "HEADRACE_HOME": str(home),
            "REDIS_URL": redis_url,
            "HEADRACE_POLICY_PORT": str(port),
            "HEADRACE_ENGINE_PORT": str(self.engine_port),
            "HEADRACE_POOL": self.pool,
            "HEADRACE_WORKER_TOKEN": WORKER,
            "HEADRACE_TRAINER_TOKEN": TRAINER,
        }
        self.http = httpx.Client(base_url=self.url, timeout=120)
        self.process: subprocess.Popen[bytes] | None = None
        self.claim = SlotClaim(self.redis, self.pool, 0, JOB)
        assert self.claim.try_acquire()
        self.redis.set(names.timeline(JOB), TIMELINE)

    def start(self) -> None:
        self.process = subprocess.Popen([sys.executable, "-m", self.module], env=self._environment)
        until(self._answers, 60, "the gateway does not answer")

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(timeout=30)
            self.process = None

    def close(self) -> None:
        self.stop()
        self.http.close()
        self.claim.release()
        self.redis.close()

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, "the gateway process ended"
        try:
            return self.http.get("/health").status_code == 200
        except httpx.TransportError:
            return False

    # the slot's owner

    def spec(self, model: Path, **changes: Any) -> ServeSpec:
        base: dict[str, Any] = {
            "serve_id": "serve_1",
            "job_id": JOB,
            "model_path": str(model),
            "architecture_hash": architecture_hash(model),
            "max_model_len": 512,
            "version": PolicyVersion(timeline=1, n=0),
            "fence": self.claim.fence,
        }
        return ServeSpec(**(base | changes))

    def serve(self, spec: ServeSpec, timeout_s: float = 60) -> None:
        self.claim.serve(spec)
        self.claim.wait_until_served(spec, timeout_s, lambda: None)

    def status(self) -> PolicyStatus:
        return PolicyStatus.model_validate_json(self.http.get("/status").text)

    def wait_for(self, state: EngineState, timeout_s: float = 60) -> PolicyStatus:
        until(lambda: self.status().state is state, timeout_s, f"the engine is not {state}")
        return self.status()

    def admin(self, route: str, body: Any, token: str = TRAINER) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"}
        return self.http.post(f"/admin/{route}", content=body.model_dump_json(), headers=headers)

    # workers and agents

    def opening(self, **changes: Any) -> SessionOpen:
        base: dict[str, Any] = {
            "session_id": ids.new_session_id(),
            "job_id": JOB,
            "rollout_id": ids.rollout_id(JOB, ids.TRAIN, 1, 0, 0),
            "attempt": 1,
            "timeline": TIMELINE,
            "serve_id": "serve_1",
            "mode": "rl",
            "sampling": Sampling(),
            "ttl_s": 300,
        }
        return SessionOpen(**(base | changes))

    def post_session(self, opened: SessionOpen, token: str = WORKER) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"}
        return self.http.post("/sessions", content=opened.model_dump_json(), headers=headers)

    def open(self, **changes: Any) -> str:
        """A fresh session's id."""
        opened = self.opening(**changes)
        reply = self.post_session(opened)
        assert reply.status_code == 201, reply.text
        return opened.session_id

    def chat(self, session_id: str, messages: list[dict[str, Any]], **body: Any) -> httpx.Response:
        return self.http.post(
            f"/rollout/{session_id}/v1/chat/completions", json={"messages": messages, "model": "m", **body}
        )

    def end(self, session_id: str) -> CapturedSession:
        headers = {"Authorization": f"Bearer {WORKER}"}
        reply = self.http.post(f"/sessions/{session_id}/end", headers=headers)
        assert reply.status_code == 200, reply.text
        return CapturedSession.model_validate_json(reply.text)


def until(condition: Any, timeout_s: float, complaint: str) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, complaint
        time.sleep(0.05)
