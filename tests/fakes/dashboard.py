"""The real dashboard as a process of its own, for tests that look at it from outside."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from tests.fakes.api import KEY

HTML = {"Accept": "text/html"}


@contextmanager
def dashboard(api_url: str, home: Path, *, key: str = KEY, host: str = "127.0.0.1") -> Iterator[str]:
    """Base address of `python -m headrace_dashboard`, which is up before the block and gone after it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")} | {
        "HEADRACE_HOME": str(home),
        "HEADRACE_API_URL": api_url,
        "HEADRACE_API_KEY": key,
        "HEADRACE_DASHBOARD_HOST": host,
        "HEADRACE_DASHBOARD_PORT": str(port),
    }
    process = subprocess.Popen([sys.executable, "-m", "headrace_dashboard"], env=env)
    try:
        _wait_until_alive(process, f"http://127.0.0.1:{port}")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=20)


def _wait_until_alive(process: subprocess.Popen[bytes], base: str) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            httpx.get(f"{base}/health")
            return
        except httpx.TransportError:
            assert process.poll() is None, f"the dashboard ended with {process.returncode}"
            assert time.monotonic() < deadline, "the dashboard did not come up within 60 s"
            time.sleep(0.05)
