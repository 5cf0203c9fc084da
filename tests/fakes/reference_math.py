"""The released math task app: the real one from the reference client's environment, or its recorded answers."""

from __future__ import annotations

import copy
import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tests.conftest import free_port
from tests.e2e.reference import provide
from tests.fakes.server import serving

KEY = "environment-key-0123456789"
RECORD = Path(__file__).parents[1] / "contract" / "reference_client" / "math_task_app.json"
PROBLEMS = (
    ("What is 2 + 3?", r"Two and three make \boxed{5}."),
    ("What is 6 times 7?", r"Six sevens are \boxed{42}."),
    ("What is half of 1?", r"It is \boxed{\frac{1}{2}}."),
    ("What is 10 - 4?", "#### 6"),
)


def recorded() -> dict[str, Any]:
    return json.loads(RECORD.read_text())


def inference_request() -> dict[str, Any]:
    """What the app asks of the policy for the first problem: messages, its tool, its sampling."""
    return recorded()["rollouts"]["correct"]["inference_requests"][0]


@contextmanager
def real(scratch: Path) -> Iterator[str]:
    """The app as released, served by uvicorn in the reference client's environment."""
    client, port = provide(scratch), free_port()
    data = scratch / "math-data"
    data.mkdir(parents=True)
    lines = "".join(json.dumps({"problem": p, "solution": s}) + "\n" for p, s in PROBLEMS)
    for split in ("train", "test"):
        (data / f"{split}.jsonl").write_text(lines)
    environ = client.environ | {"MATH_DATASET_LOCAL_DIR": str(data), "ENVIRONMENT_API_KEY": KEY}
    line = [client.python, "-m", "uvicorn", "--factory", "examples.task_apps.math.math_task_app:fastapi_app"]
    with (scratch / "math.log").open("wb") as log:
        process = subprocess.Popen(
            [*line, "--port", str(port)], cwd=client.home, env=environ, stdout=log, stderr=log
        )
    try:
        _await(f"http://127.0.0.1:{port}", process, scratch / "math.log")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=30)


def _await(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        try:
            if httpx.get(f"{url}/health", trust_env=False).status_code == 200:
                return
        except httpx.HTTPError:
            time.sleep(0.2)
    raise AssertionError(f"the math task app did not start: {log.read_text()[-1000:]}")


@contextmanager
def replayed() -> Iterator[str]:
    """Asks the policy as the app does, and answers what the app answered to such a reply."""
    record = recorded()

    def get(request: Request) -> Response:
        has_key = request.headers.get("x-api-key") == KEY
        name = "taskset" if request.url.path == "/task_info" else "health"
        if request.query_params.get("seed") is not None:
            name = "task_info"
        without = {"taskset": "task_info_without_key", "health": "health_without_key"}
        found = record["gets"][name if has_key else without.get(name, "task_info_without_key")]
        return JSONResponse(found["body"], status_code=found["status"])

    async def rollout(request: Request) -> Response:
        if request.headers.get("x-api-key") != KEY:
            refusal = record["gets"]["task_info_without_key"]
            return JSONResponse(refusal["body"], status_code=refusal["status"])
        body = await request.json()
        config = body["policy"]["config"]
        asked = {name: config[name] for name in ("model", "temperature", "max_tokens") if name in config}
        async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
            said = await http.post(
                f"{config['inference_url']}/chat/completions", json=inference_request() | asked
            )
        answer = copy.deepcopy(record["rollouts"][_case(said)]["answer"])
        text = json.dumps(answer | {"run_id": body["run_id"]})
        text = text.replace("http://policy/rollout/trace_0/v1", config["inference_url"])
        return Response(text, media_type="application/json")

    routes = [Route("/health", get), Route("/task_info", get), Route("/rollout", rollout, methods=["POST"])]
    with serving(Starlette(routes=routes)) as url:
        yield url


def _case(said: httpx.Response) -> str:
    """The recorded rollout whose policy said the same."""
    if said.status_code >= 400:
        return "engine_500" if said.status_code >= 500 else "policy_fault"
    calls = said.json()["choices"][0]["message"].get("tool_calls")
    if not calls:
        return "no_tool_call"
    answer = json.loads(calls[0]["function"]["arguments"]).get("answer")
    return {"5": "correct", "": "blank"}.get(answer, "wrong")
