"""The base wheel alone, in an empty environment, submits to a live API and follows the job to its end.

Slow: it makes a virtual environment and installs into it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tests.fakes.server import serving
from tests.integration.calling import claim, end
from tests.integration.running_api import ALICE, RunningApi, api  # noqa: F401
from tests.packaging.test_wheel import wheel  # noqa: F401

from headrace.contracts.job import JobStatus

pytestmark = [pytest.mark.slow, pytest.mark.integration, pytest.mark.timeout(600)]

REPOSITORY = Path(__file__).parents[2]
APP_KEY = "environment-key-of-the-task-app"
CHAT = '{"messages": [{"role": "user", "content": "2+2"}, {"role": "assistant", "content": "4"}]}\n'


@pytest.fixture(scope="module")
def bin_folder(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: F811
    """The `bin` of an environment that holds the wheel and its base dependencies."""
    venv = tmp_path_factory.mktemp("base") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True, timeout=120)
    install = [str(venv / "bin" / "pip"), "install", "-q", "--disable-pip-version-check"]
    constraints = str(REPOSITORY / "constraints" / "cpu.txt")
    ended = subprocess.run(
        [*install, "-c", constraints, str(wheel)], capture_output=True, text=True, timeout=400, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return venv / "bin"


def command(bin_folder: Path, url: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {
        "PATH": os.environ["PATH"], "HOME": str(folder), "HEADRACE_HOME": str(folder / "no-home"),
        "HEADRACE_API_URL": url, "HEADRACE_API_KEY": ALICE, "ENVIRONMENT_API_KEY": APP_KEY,
    }  # fmt: skip
    return subprocess.run(
        [str(bin_folder / "headrace"), *arguments],
        env=environ, cwd=folder, capture_output=True, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def task_info(request: Request) -> Response:
    if request.headers.get("x-api-key") != APP_KEY:
        return JSONResponse({"detail": {"error": {"code": "unauthorised"}}}, status_code=400)
    return JSONResponse({"taskset": {"id": "fake"}})


TASK_APP = Starlette(
    routes=[
        Route("/health", lambda _: JSONResponse({"healthy": True})),
        Route("/task_info", task_info),
    ]
)


def test_nothing_of_the_services_is_installed(bin_folder: Path):
    listed = subprocess.run(
        [str(bin_folder / "pip"), "list", "--format", "json"], capture_output=True, text=True, check=True
    )
    installed = {row["name"].lower() for row in json.loads(listed.stdout)}
    assert "httpx" in installed
    assert installed & {"torch", "vllm", "fastapi", "redis", "celery", "sqlmodel", "transformers"} == set()


def test_an_rl_job_is_submitted_with_a_sealed_key_and_followed_to_its_end(
    api: RunningApi, bin_folder: Path, tmp_path: Path  # noqa: F811
):  # fmt: skip
    trainer = threading.Thread(target=succeed, args=(api,), daemon=True)
    trainer.start()
    with serving(TASK_APP) as task_url:
        (tmp_path / "rl.toml").write_text(
            f'[services]\ntask_url = "{task_url}"\n[model]\nbase = "{api.model}"\n'
            "[training.rollouts]\nseeds = [1, 2, 3, 4]\nprompts_per_iteration = 2\n"
        )
        ended = command(
            bin_folder, api.url, tmp_path, "train", "--config", "rl.toml", "--json", "--poll-interval", "0.2"
        )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout.splitlines()[-1])["status"] == "succeeded"
    assert len(api.alice.list_environment_keys()) == 1


def succeed(api: RunningApi) -> None:  # noqa: F811
    """In the trainer's place: the first job that is queued succeeds."""
    while not (queued := api.bob.list_jobs(status="queued")):
        time.sleep(0.1)
    claim(api, queued[0]["job_id"])
    end(api, queued[0]["job_id"], JobStatus.SUCCEEDED)


def test_an_sft_job_is_uploaded_and_submitted(api: RunningApi, bin_folder: Path, tmp_path: Path):  # noqa: F811
    (tmp_path / "train.jsonl").write_text(CHAT)
    (tmp_path / "sft.toml").write_text(
        f'[algorithm]\ntype = "offline"\n[job]\nmodel = "{api.model}"\ndata = "train.jsonl"\n'
    )
    ended = command(bin_folder, api.url, tmp_path, "train", "--config", "sft.toml", "--no-poll", "--json")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["status"] == "queued"


def test_a_notebook_client_comes_with_it(api: RunningApi, bin_folder: Path, tmp_path: Path):  # noqa: F811
    code = f"from headrace import Client; print(len(Client({api.url!r}, {ALICE!r}).jobs()))"
    ended = subprocess.run(
        [str(bin_folder / "python"), "-P", "-c", code],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (0, "0\n"), ended.stderr
