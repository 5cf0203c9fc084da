"""A whole Headrace and one task app as child processes of the demo."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from headrace.errors import Unavailable

ROOT = Path(__file__).parents[2]
"""The repository: where `examples` is importable."""
N_PORTS = 6
READY_WITHIN_S = 180.0
STOP_WITHIN_S = 30.0
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Stack:
    """Addresses of what runs, and where its files lie."""

    home: Path
    api_url: str
    dashboard_url: str
    task_url: str

    @property
    def api_key(self) -> str:
        return (self.home / "api_key").read_text().strip()

    @property
    def environ(self) -> dict[str, str]:
        """Environment in which the `headrace` command finds this stack and no other."""
        own = {
            "HEADRACE_HOME": str(self.home),
            "HEADRACE_API_URL": self.api_url,
            "HEADRACE_API_KEY": self.api_key,
        }
        return {**os.environ, **own}


def demo_home(name: str) -> Path:
    """HEADRACE_HOME, else `.headrace/<name>` in the repository."""
    given = os.environ.get("HEADRACE_HOME")
    return Path(given).expanduser().resolve() if given else ROOT / ".headrace" / name


@contextmanager
def running(home: Path, app: str, *, keep: bool = False) -> Iterator[Stack]:
    """Start `headrace up` and `headrace serve`; stop both at the end, whatever happened.

    With `keep` they go on running after an end without an error.
    Raises Unavailable with the last words of the child that did not come up.
    """
    logs = home / "demo"
    logs.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stop:
        base, task_port = _ports()
        environ = {**os.environ, "HEADRACE_HOME": str(home)}
        up = _start(
            ("up", "--home", str(home), "--base-port", str(base), "--json"), logs / "up.log", environ, keep
        )
        serve = _start(("serve", app, "--port", str(task_port)), logs / "serve.log", environ, keep)
        stop.callback(_stop, up)
        stop.callback(_stop, serve)
        task_url = f"http://127.0.0.1:{task_port}"
        addresses = _await_ready(up, logs / "up.log")
        _await_health(serve, logs / "serve.log", f"{task_url}/health")
        yield Stack(home, addresses["api"], addresses.get("dashboard", ""), task_url)
        if keep:
            stop.pop_all()


def _start(
    arguments: Sequence[str], log: Path, environ: dict[str, str], keep: bool
) -> subprocess.Popen[bytes]:
    """A `headrace` child in a session of its own, so that Ctrl-C reaches it through us, in order."""
    libc = ctypes.CDLL(None)

    def die_with_parent() -> None:
        if sys.platform == "linux" and not keep:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    with log.open("wb") as out:
        return subprocess.Popen(
            [sys.executable, "-m", "headrace_cli", *arguments],
            cwd=ROOT, env=environ, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            start_new_session=True, preexec_fn=die_with_parent,
        )  # fmt: skip


def _stop(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(STOP_WITHIN_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _await_ready(up: subprocess.Popen[bytes], log: Path) -> dict[str, str]:
    """Addresses from the event that `headrace up --json` prints when everything is ready."""
    deadline = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline:
        for line in log.read_text().split("\n")[:-1]:  # what follows the last line break is half a line
            if line.startswith("{") and (event := json.loads(line)).get("event") == "stack.ready":
                return event["addresses"]
        _require_alive(up, log)
        time.sleep(0.2)
    raise Unavailable(f"the stack was not ready within {READY_WITHIN_S:.0f} s; see {log}")


def _await_health(serve: subprocess.Popen[bytes], log: Path, url: str) -> None:
    deadline = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline:
        try:
            if httpx.get(url, timeout=2.0).status_code == 200:
                return
        except httpx.HTTPError:
            pass  # not listening yet
        _require_alive(serve, log)
        time.sleep(0.2)
    raise Unavailable(f"the task app did not answer at {url} within {READY_WITHIN_S:.0f} s; see {log}")


def _require_alive(child: subprocess.Popen[bytes], log: Path) -> None:
    if child.poll() is not None:
        words = log.read_text().strip().splitlines()[-5:]
        raise Unavailable(f"a child process ended with code {child.returncode} ({log}): " + " / ".join(words))


def _ports() -> tuple[int, int]:
    """First of six free ports in a row for the stack (or HEADRACE_BASE_PORT), and one for the task app."""
    given = os.environ.get("HEADRACE_BASE_PORT")
    if given:
        return int(given), _any_free_port()
    for base in range(8760, 9760, 20):
        if all(_is_free(base + offset) for offset in range(N_PORTS)):
            return base, _any_free_port()
    raise Unavailable("found no six free ports in a row between 8760 and 9760; set HEADRACE_BASE_PORT")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def _any_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
