"""The supervisor over real small processes: order, restarts, stops, and nothing left behind."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from tests.conftest import free_port

from headrace_cli.stack.state import is_held, read_state

pytestmark = pytest.mark.integration
REPOSITORY = Path(__file__).parents[2]
WAIT_S = 60

STUBBORN = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
exec(SERVER.replace("signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))", ""))
"""
WITH_GRANDCHILD = """
import subprocess, sys
print("grandchild", subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
      start_new_session=True).pid, flush=True)
"""


class Stack:
    """A running supervisor and the events that it has printed."""

    def __init__(self, home: Path, plan: dict) -> None:
        self.home = home
        plan_file = home / "plan.json"
        plan_file.write_text(json.dumps(plan))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.fakes.supervised", str(home), str(plan_file)],
            cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.seen: list[dict] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def until(self, event: str, process: str | None = None, after: int = 0) -> dict:
        """The next such event; events before position `after` do not count."""
        deadline = time.monotonic() + WAIT_S
        position = after
        while True:
            for row in self.seen[position:]:
                if row["event"] == event and process in (None, row.get("process")):
                    return row
            position = len(self.seen)
            line = self._lines.get(timeout=max(0.1, deadline - time.monotonic()))
            assert line is not None, f"it ended before {event}: {self.seen}\n{self.stderr()}"
            self.seen.append(json.loads(line))

    def pid(self, name: str) -> int:
        return [row for row in self.seen if row["event"] == "process.started" and row["process"] == name][-1][
            "pid"
        ]

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout=WAIT_S)

    def stderr(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Stack]]:
    stacks: list[Stack] = []

    def start_one(**plan) -> Stack:
        for row in plan["processes"]:
            row.setdefault("port", free_port())
            if "code" in row:
                from tests.fakes.supervised import SERVER

                row["code"] = f"SERVER = {SERVER!r}.replace('PORT', str(PORT))\n{row['code']}"
        stacks.append(Stack(tmp_path, plan))
        return stacks[-1]

    yield start_one
    for stack in stacks:
        if stack.process.poll() is None:
            stack.process.kill()
            stack.process.wait()


def is_alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def wait_gone(*pids: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while any(is_alive(pid) for pid in pids):
        assert time.monotonic() < deadline, f"still there: {[pid for pid in pids if is_alive(pid)]}"
        time.sleep(0.05)


def test_a_process_starts_only_after_those_it_needs_are_ready(start):
    stack = start(processes=[{"name": "second", "after": ["first"]}, {"name": "first"}])
    stack.until("stack.ready")
    order = [(row["event"], row["process"]) for row in stack.seen if row["event"].startswith("process.")]
    assert order.index(("process.started", "second")) > order.index(("process.ready", "first"))
    assert stack.stop() == 0


def test_a_child_that_is_killed_is_named_and_started_again_with_growing_waits(start):
    stack = start(processes=[{"name": "steady"}, {"name": "victim"}], first_backoff=0.2)
    stack.until("stack.ready")
    delays = []
    for _ in range(3):
        position = len(stack.seen)
        pid = stack.pid("victim")
        os.kill(pid, signal.SIGKILL)
        died = stack.until("process.died", "victim", position)
        assert (died["pid"], died["how"]) == (pid, "was ended by SIGKILL")
        delays.append(died["restart_in_s"])
        assert stack.until("process.ready", "victim", position)["pid"] != pid
    assert delays == pytest.approx([0.2, 0.4, 0.8])
    state = read_state(stack.home)
    assert state is not None
    assert {row.name: row.restarts for row in state.processes} == {"steady": 0, "victim": 3}
    assert not any(row["event"] == "process.died" and row["process"] == "steady" for row in stack.seen)
    assert stack.stop() == 0


def test_what_a_dead_child_said_last_is_told_and_kept_in_its_log(start):
    stack = start(processes=[{"name": "broken", "code": "raise SystemExit('no such model')"}], ready_within=2)
    died = stack.until("process.died", "broken")
    assert (died["how"], died["last_words"]) == ("exited with code 1", "no such model")
    assert "no such model" in Path(died["log"]).read_text()


def test_processes_that_are_not_ready_by_the_deadline_stop_the_stack_and_are_named(start):
    stack = start(processes=[{"name": "fine"}, {"name": "slow", "code": "import time; time.sleep(600)"}],
                  ready_within=3)  # fmt: skip
    stack.until("stack.stopped")
    pids = [row["pid"] for row in stack.seen if row["event"] == "process.started"]
    stack.process.wait(timeout=WAIT_S)
    assert re.search(r"NotReadyInTime: not ready within 3 s: .*slow: \w+.*slow\.log", stack.stderr())
    wait_gone(*pids)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_every_process_and_leaves_nothing_behind(start, number):
    processes = [
        {"name": "store", "stage": 2},
        {"name": "parent", "code": WITH_GRANDCHILD + "exec(SERVER)"},
        {"name": "plain", "stage": 1},
    ]
    stack = start(processes=processes)
    stack.until("stack.ready")
    pids = [stack.pid(row["name"]) for row in processes]
    grandchild = int((stack.home / "logs" / "parent.log").read_text().split()[1])
    assert is_alive(grandchild)
    assert stack.stop(number) == 0
    stack.until("stack.stopped")
    assert not any(is_alive(pid) for pid in [*pids, grandchild])
    state = read_state(stack.home)
    assert state is not None
    assert {row.state for row in state.processes} == {"stopped"}
    assert not is_held(stack.home)


def test_the_grandchildren_of_a_child_that_was_killed_are_killed_before_it_starts_again(start):
    stack = start(processes=[{"name": "parent", "code": WITH_GRANDCHILD + "exec(SERVER)"}])
    stack.until("stack.ready")
    grandchild = int((stack.home / "logs" / "parent.log").read_text().split()[1])
    os.kill(stack.pid("parent"), signal.SIGKILL)
    stack.until("process.died", "parent")
    wait_gone(grandchild)
    assert stack.stop() == 0


def test_a_process_that_ignores_the_signal_is_killed_after_its_grace_and_named(start):
    stack = start(processes=[{"name": "stubborn", "code": STUBBORN}, {"name": "store", "stage": 2}],
                  stop_grace=[0.5, 5, 5])  # fmt: skip
    stack.until("stack.ready")
    stubborn = stack.pid("stubborn")
    assert stack.stop() == 0
    assert stack.until("stack.killed")["processes"] == ["stubborn"]
    assert not is_alive(stubborn)


def test_the_store_stops_last(start):
    stack = start(processes=[{"name": "store", "stage": 2}, {"name": "worker", "code": STUBBORN, "stage": 0}],
                  stop_grace=[2, 5, 5])  # fmt: skip
    stack.until("stack.ready")
    store, worker = stack.pid("store"), stack.pid("worker")
    stack.process.send_signal(signal.SIGTERM)
    stack.until("stack.stopping")
    while is_alive(worker):
        assert is_alive(store)
        time.sleep(0.05)
    assert stack.process.wait(timeout=WAIT_S) == 0
    assert not is_alive(store)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's death signal is Linux's")
def test_kill_minus_nine_of_the_supervisor_takes_its_children_along(start):
    stack = start(processes=[{"name": "one"}, {"name": "two", "code": STUBBORN}])
    stack.until("stack.ready")
    pids = [stack.pid("one"), stack.pid("two")]
    stack.process.kill()
    stack.process.wait()
    wait_gone(*pids)
    assert not is_held(stack.home)
