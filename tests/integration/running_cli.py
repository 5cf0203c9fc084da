"""The commands over a real API in a thread, and a real task app of the SDK beside it."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path

import httpx
import pytest
import tests.fakes.server
from sqlalchemy import func
from sqlalchemy import select as from_table
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
from tests.conftest import free_port
from tests.integration.running_api import serving

from headrace.contracts.job import JobStatus
from headrace.store import jobs, metrics
from headrace.store.session import Store
from headrace.store.tables import Job
from headrace_api.settings import ApiSettings
from headrace_cli.main import run

KEY = "hr_" + "ab" * 24
APP_KEYS = ("first-environment-key", "second-environment-key", "third-environment-key")
CHAT = '{"messages": [{"role": "user", "content": "2+2"}, {"role": "assistant", "content": "4"}]}\n'
NAMES = (
    *("HEADRACE_API_KEY", "SYNTH_API_KEY", "ENVIRONMENT_API_KEY", "ENVIRONMENT_API_KEY_ALIASES"),
    *("DEV_ENVIRONMENT_API_KEY", "TASK_APP_URL", "HEADRACE_API_URL", "BACKEND_BASE_URL"),
    *("BACKEND_OVERRIDE", "SYNTH_BACKEND_URL_OVERRIDE", "SDK_EXPERIMENTAL"),
)
"""Variables that would speak for the person who runs the tests."""


@dataclass
class Backend:
    """A running API, its home folder and its database."""

    url: str
    home: Path
    store: Store

    def claim(self, job_id: str) -> None:
        with self.store.write() as session:
            assert jobs.claim(session, job_id, "test") == 1

    def end(self, job_id: str, status: JobStatus, **fields: object) -> None:
        with self.store.write() as session:
            jobs.move(session, job_id, status, **fields)

    def measure(self, job_id: str, step: int, **values: float) -> None:
        named = {name.replace("_", ".", 1): value for name, value in values.items()}
        with self.store.write() as session:
            metrics.write(session, "local", job_id, step, named, "training")

    def n_jobs(self) -> int:
        with self.store.read() as session:
            return session.execute(from_table(func.count()).select_from(Job)).scalar_one()


@pytest.fixture(scope="module")
def backend(_valkey_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    home = tmp_path_factory.mktemp("home")
    model = home / "tiny"
    model.mkdir()
    (model / "config.json").write_text('{"model_type": "qwen3", "max_position_embeddings": 512}')
    (home / "models.toml").write_text(
        f'[models."tiny"]\npath = "{model}"\n[models."odd"]\npath = "{model}"\nexperimental = true\n'
    )
    (home / "api_key").write_text(KEY + "\n")
    settings = ApiSettings.model_validate(
        {
            "HEADRACE_HOME": home,
            "REDIS_URL": _valkey_server,
            "HEADRACE_SECRET_KEY": "cd" * 32,
            "HEADRACE_BOOTSTRAP_KEY": KEY,
        }
    )
    with serving(settings) as url:
        store = Store(settings.sql_url)
        yield Backend(url, home, store)
        store.close()


@pytest.fixture
def environ(backend: Backend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """The environment of a person whose stack is `backend`; the test runs in an empty folder."""
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    for variable, value in (("HEADRACE_HOME", str(backend.home)), ("HEADRACE_API_URL", backend.url)):
        monkeypatch.setenv(variable, value)
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return dict(os.environ)


@pytest.fixture
def cli(environ: dict[str, str], capsys: pytest.CaptureFixture) -> Callable[..., tuple[int, str, str]]:
    """Run a command without a terminal: (exit code, stdout, stderr)."""

    def call(*arguments: str) -> tuple[int, str, str]:
        code = run(arguments)
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


_APP = """
from headrace.task_app import SingleTurn, TaskApp

rows = [{"prompt": f"{n}+1", "answer": str(n + 1)} for n in range(30)]
play = SingleTurn(
    rows, lambda reply, row: float(row["answer"] in str(reply)), splits={"train": range(20), "test": range(20, 30)}
)
app = TaskApp(play, task_id="sums")
"""


@pytest.fixture(scope="module")
def task_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A task app of the SDK in a process of its own, with two splits; it takes three keys."""
    file, port = tmp_path_factory.mktemp("app") / "app.py", free_port()
    file.write_text(_APP)
    first, *others = APP_KEYS
    environ = os.environ | {"ENVIRONMENT_API_KEY": first, "ENVIRONMENT_API_KEY_ALIASES": ",".join(others)}
    command = [sys.executable, "-m", "headrace_cli", "serve", f"{file}:app", "--port", str(port)]
    process = subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + 60
    while not _answers(url):
        assert process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    yield url
    process.terminate()
    process.wait(timeout=20)


def _answers(url: str) -> bool:
    try:
        httpx.get(f"{url}/health", timeout=5)
    except httpx.HTTPError:
        return False
    return True


@pytest.fixture(scope="module")
def policy() -> Iterator[str]:
    """What a task app asks whether it can reach the policy."""

    def health(_: object) -> JSONResponse:
        return JSONResponse({"status": "ok"})

    with tests.fakes.server.serving(Starlette(routes=[Route("/health", health)])) as url:
        yield url


def rl_config(task_url: str, path: str = "rl.toml", **tables: str) -> str:
    """Write an RL config; keyword arguments replace the lines of `rollouts` or add tables."""
    rollouts = tables.pop("rollouts", 'seeds = [1, 2, 3, 4]\nsplit = "train"')
    more = "".join(f"[{name}]\n{lines}\n" for name, lines in tables.items())
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(
        f'[algorithm]\ntype = "online"\n[services]\ntask_url = "{task_url}"\n[model]\nbase = "tiny"\n'
        "[training]\niterations_per_epoch = 4\nbatch_size = 2\ngroup_size = 2\n"
        f"[training.rollouts]\n{rollouts}\n{more}"
    )
    return path


def sft_config(
    path: str = "sft.toml", data: str | None = "train.jsonl", rows: int = 1, more: str = ""
) -> str:
    named = f'data = "{data}"\n' if data else ""
    Path(path).write_text(f'[algorithm]\ntype = "offline"\n[job]\nmodel = "tiny"\n{named}{more}')
    if data:
        Path(data).write_text("".join(CHAT.replace("2+2", f"{n}+2") for n in range(rows)))
    return path


def env_file(path: str = ".env", **values: str) -> str:
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    return path


class Terminal:
    """A command on a pseudo-terminal of its own: what it writes is read, what a person types is sent."""

    def __init__(self, *arguments: str, environ: Mapping[str, str], term: str = "dumb") -> None:
        command = [sys.executable, "-m", "headrace_cli", *arguments]
        self._pid, self._fd = pty.fork()
        if self._pid == 0:
            os.execve(sys.executable, command, {**environ, "TERM": term, "COLUMNS": "160"})
        ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
        self.output = ""
        self._seen = 0

    def expect(self, pattern: str, timeout_s: float = 60.0) -> re.Match[str]:
        """Read until `pattern` comes after what was expected before."""
        deadline = time.monotonic() + timeout_s
        while (match := re.compile(pattern).search(self.output, self._seen)) is None:
            assert time.monotonic() < deadline, f"no {pattern!r} in:\n{self.output}"
            assert self._read(), f"ended without {pattern!r}:\n{self.output}"
        self._seen = match.end()
        return match

    def type(self, text: str) -> None:
        os.write(self._fd, f"{text}\n".encode())

    def interrupt(self) -> None:
        """Ctrl-C, as the terminal's driver understands it.

        Pressed again, as a person would, where it came just before the command began to read: Python sees
        such a signal only when the read ends.
        """
        for _ in range(5):
            before = len(self.output)
            os.write(self._fd, b"\x03")
            while select.select([self._fd], [], [], 5.0)[0]:
                if not self._read() or self.output[before:].strip("^C\n"):
                    return

    def end(self) -> int:
        """Read to the end; the exit code."""
        while self._read():
            pass
        os.close(self._fd)
        _, status = os.waitpid(self._pid, 0)
        self._pid = 0
        return os.waitstatus_to_exitcode(status)

    def kill(self) -> None:
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            self.end()

    def _read(self) -> bool:
        ready, _, _ = select.select([self._fd], [], [], 60.0)
        assert ready, f"nothing more came for a minute after:\n{self.output}"
        try:
            piece = os.read(self._fd, 65536)
        except OSError:  # the other side has closed
            return False
        self.output += piece.decode(errors="replace").replace("\r\n", "\n")
        return bool(piece)


@pytest.fixture
def terminal(environ: dict[str, str]) -> Iterator[Callable[..., Terminal]]:
    """Start a command on a terminal; what is left of it at the end is ended."""
    started: list[Terminal] = []

    def start(*arguments: str, term: str = "dumb", **variables: str) -> Terminal:
        started.append(Terminal(*arguments, environ={**environ, **variables}, term=term))
        return started[-1]

    yield start
    for one in started:
        one.kill()
