"""One whole `headrace up` for all end-to-end tests: real Valkey, SQLite, Celery, vLLM, Chromium."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.browser import Browser

from examples.demo.stack import ROOT, Stack, running
from examples.walk import base_model, demonstrations
from headrace.client import ApiClient


@dataclass(frozen=True)
class Running:
    """The stack as a user sees it: the command, and the API."""

    stack: Stack
    api: ApiClient
    environ: dict[str, str] = field(default_factory=dict)

    def with_env(self, **variables: str) -> Running:
        """The same stack, used from a shell with further variables."""
        return replace(self, environ={**self.environ, **variables})

    def headrace(self, *arguments: str, timeout: float = 600) -> subprocess.CompletedProcess[str]:
        """Run the command as a user does."""
        return subprocess.run(
            [sys.executable, "-m", "headrace_cli", *arguments],
            cwd=ROOT,
            env={**self.stack.environ, **self.environ},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def submit(self, *arguments: str) -> str:
        """Submit without waiting; returns the job's id."""
        done = self.headrace(*arguments, "--json", "--no-poll")
        assert done.returncode == 0, done.stderr
        return next(
            told["job_id"]
            for line in reversed(done.stdout.splitlines())
            if line.startswith("{") and "job_id" in (told := json.loads(line))
        )

    def process(self, name: str) -> dict[str, Any]:
        """What `headrace status --json` says of one process."""
        status = json.loads(self.headrace("status", "--json").stdout)
        return next(process for process in status["processes"] if process["name"] == name)


@pytest.fixture(scope="session")
def running_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    home = tmp_path_factory.mktemp("headrace-home")
    with running(home, "examples.walk.app:app") as stack, ApiClient(stack.api_url, stack.api_key) as api:
        yield Running(stack, api)


@pytest.fixture(scope="session")
def base(running_stack: Running) -> str:
    """Name of the tiny base model, as an operator registers it."""
    home = running_stack.stack.home
    base_model.make(home / "models" / "tiny-walk")
    (home / "models.toml").write_text('[models."tiny-walk"]\npath = "models/tiny-walk"\n')
    return "tiny-walk"


@pytest.fixture(scope="session")
def demonstrations_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "demonstrations.jsonl"
    demonstrations.write(path)
    return path


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    chromium = Browser(tmp_path_factory.mktemp("chromium"))
    yield chromium
    chromium.close()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """Print the processes' own words where a test failed: the reason is seldom in the test."""
    outcome = yield
    report = outcome.get_result()
    stack = getattr(item, "funcargs", {}).get("running_stack")
    if report.failed and stack is not None:
        for log in sorted((stack.stack.home / "logs").glob("*.log")):
            tail = log.read_text(errors="replace").splitlines()[-40:]
            report.sections.append((f"log of {log.stem}", os.linesep.join(tail)))
