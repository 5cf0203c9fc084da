"""The command line starts without what only the services need."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

HEAVY = {"torch", "vllm", "transformers", "sqlmodel", "sqlalchemy", "fastapi", "celery", "redis", "numpy"}


def imported(*command: str) -> set[str]:
    """Top-level names of the modules that `python command` imports."""
    return {name.split(".")[0] for name in modules(*command)}


def modules(*command: str) -> list[str]:
    """Every module that `python -X importtime command` imports."""
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", *command],
        env=os.environ | {"HEADRACE_HOME": "/nonexistent", "HEADRACE_API_URL": ""},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    lines = [line for line in ended.stderr.splitlines() if line.startswith("import time:")]
    return [line.rsplit("|", 1)[1].strip() for line in lines[1:]]  # the first is the table's head


def test_help_loads_nothing_heavy_and_no_http_client():
    found = imported("-m", "headrace_cli", "--help")
    assert "headrace_cli" in found
    assert found & (HEAVY | {"httpx", "pydantic", "rich"}) == set()


@pytest.mark.parametrize(
    "command", [("train", "--help"), ("jobs", "list"), ("traces", "--help"), ("up", "--help"), ("status",)]
)
def test_no_command_loads_what_belongs_to_a_service(command):
    found = imported("-m", "headrace_cli", *command)
    assert "headrace_cli" in found
    assert found & HEAVY == set()


def test_help_loads_at_most_twice_the_modules_of_click_and_httpx():
    """The bound is on time; modules are what the time goes into, and their number does not jitter."""
    ours, theirs = modules("-m", "headrace_cli", "--help"), modules("-c", "import click, httpx")
    assert 50 < len(ours) <= 2 * len(theirs)


def test_the_package_itself_loads_no_http_client_until_its_client_is_asked_for():
    assert "httpx" not in imported("-c", "import headrace")
    assert "httpx" in imported("-c", "from headrace import Client")
