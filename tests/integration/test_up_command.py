"""`headrace up` and `headrace status` as a person calls them, where they refuse or only look."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.conftest import free_port

from headrace_cli.stack.state import ProcessState, StackState, held, write_state

pytestmark = pytest.mark.integration
PORTS = ("api", "policy", "dashboard", "flower", "engine", "valkey")


def headrace(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("HEADRACE_", "REDIS_"))
    }
    return subprocess.run(
        [sys.executable, "-m", "headrace_cli", *arguments],
        env=clean | (env or {}), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def free_ports() -> list[str]:
    return [part for name in PORTS for part in (f"--{name}-port", str(free_port()))]


def test_a_taken_port_is_named_with_its_holder_and_the_option_to_change_it(tmp_path):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        ended = headrace("up", "--home", str(tmp_path), *free_ports(), "--policy-port", str(port))
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"error: port {port} (policy) is taken by `")
    assert f"(pid {os.getpid()})" in ended.stderr
    assert "--policy-port" in ended.stderr
    assert "--base-port" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    assert not (tmp_path / "state.json").exists()


def test_a_port_whose_last_server_has_just_ended_is_not_taken():
    from headrace_cli.stack.ports import is_free

    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as every server of ours does
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        server.accept()[0].close()  # the server's side closes first and goes to TIME_WAIT
        client.close()
        assert not is_free(port)
    assert is_free(port)


def test_a_second_up_on_the_same_home_says_who_holds_it(tmp_path):
    with held(tmp_path):
        ended = headrace("up", "--home", str(tmp_path), *free_ports())
    assert ended.returncode == 1
    assert ended.stderr == (
        f"error: another `headrace up` (pid {os.getpid()}) runs on {tmp_path}; stop it, or give another folder "
        "with --home and other ports with --base-port\n"
    )


def test_an_outside_redis_that_does_not_answer_is_named_without_its_password(tmp_path):
    url = f"redis://:secret@127.0.0.1:{free_port()}/0"
    ended = headrace("up", "--home", str(tmp_path), *free_ports(), env={"REDIS_URL": url})
    assert ended.returncode == 1
    assert "REDIS_URL = redis://***@127.0.0.1" in ended.stderr
    assert "unset REDIS_URL" in ended.stderr
    assert "secret" not in ended.stderr


def test_status_without_a_stack_says_so(tmp_path):
    ended = headrace("status", "--home", str(tmp_path))
    assert ended.returncode == 1
    assert "no stack runs on" in ended.stdout
    assert json.loads(headrace("status", "--json", "--home", str(tmp_path)).stdout)["running"] is False


def test_status_does_not_trust_a_state_file_whose_supervisor_is_gone(tmp_path):
    write_state(tmp_path, StackState(str(tmp_path), os.getpid(), time.time(), {}, ()))
    assert "no stack runs on" in headrace("status", "--home", str(tmp_path)).stdout


def test_status_shows_addresses_pids_and_what_is_really_alive(tmp_path):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    address = f"http://127.0.0.1:{free_port()}"
    write_state(
        tmp_path,
        StackState(
            str(tmp_path), os.getpid(), time.time(), {"api": address},
            (
                row(tmp_path, "trainer", os.getpid()),
                row(tmp_path, "recorder", gone.pid),
                row(tmp_path, "api", os.getpid(), health=f"{address}/ready"),
            ),
        ),
    )  # fmt: skip
    with held(tmp_path):
        ended = headrace("status", "--json", "--home", str(tmp_path))
        table = headrace("status", "--home", str(tmp_path)).stdout
    assert ended.returncode == 1
    shown = json.loads(ended.stdout)
    assert shown["addresses"] == {"api": address}
    assert {p["name"]: (p["state"], p["pid"]) for p in shown["processes"]} == {
        "trainer": ("ready", os.getpid()),
        "recorder": ("dead", gone.pid),
        "api": ("unready", os.getpid()),
    }
    assert table.splitlines()[0].split() == ["process", "state", "pid", "restarts", "address"]


def row(home: Path, name: str, pid: int, health: str | None = None) -> ProcessState:
    return ProcessState(name, "ready", pid, None, 0, time.time(), "", str(home / f"{name}.log"), health)
