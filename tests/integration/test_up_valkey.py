"""The embedded Valkey under the supervisor, and the ways in which processes show that they are ready."""

from __future__ import annotations

import os
import signal
import sys

import pytest
import redis
from tests.conftest import free_port
from tests.integration.test_up_supervisor import start, wait_gone  # noqa: F401  (a fixture)

from headrace.queue.alive import beating
from headrace_cli.stack.assemble import Plan, processes
from headrace_cli.stack.ports import Ports
from headrace_cli.stack.probes import HeartbeatProbe, HttpProbe, RedisProbe
from headrace_cli.stack.secrets import load_or_create

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("how", ["stop", "kill"])
@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's death signal is Linux's")
def test_what_valkey_was_told_is_there_after_the_next_start(start, how):  # noqa: F811
    port = free_port()
    first = start(processes=[{"name": "valkey", "port": port}])
    first.until("stack.ready")
    client = redis.Redis(port=port)
    client.set("kept", how)
    pid = first.pid("valkey")
    if how == "stop":
        assert first.stop() == 0
    else:
        first.process.kill()
        first.process.wait()
    wait_gone(pid)
    second = start(processes=[{"name": "valkey", "port": port}])
    second.until("stack.ready")
    assert client.get("kept") == how.encode()
    assert second.stop(signal.SIGINT) == 0
    assert (first.home / "valkey" / "appendonlydir").is_dir()


def test_valkey_listens_on_loopback_only(start):  # noqa: F811
    stack = start(processes=[{"name": "valkey", "port": (port := free_port())}])
    stack.until("stack.ready")
    assert redis.Redis(port=port).config_get("bind") == {"bind": "127.0.0.1"}
    assert redis.Redis(port=port).config_get("appendonly") == {"appendonly": "yes"}
    assert stack.stop() == 0


def test_a_heartbeat_counts_only_from_the_process_itself(valkey_url):
    probe = HeartbeatProbe(valkey_url, "trainer")
    assert probe(os.getpid()) == "no heartbeat yet"
    with redis.Redis.from_url(valkey_url) as client, beating(client, "trainer"):
        while (said := probe(os.getpid())) == "no heartbeat yet":
            pass
        assert said is None
        assert probe(os.getpid() + 1) == "no heartbeat of this process yet"
    assert probe(os.getpid()) == "no heartbeat yet"


def test_two_workers_beat_under_the_names_that_the_supervisor_gave_them(valkey_url, monkeypatch):
    monkeypatch.setenv("HEADRACE_PROCESS", "worker-2")
    with redis.Redis.from_url(valkey_url) as client, beating(client, "worker"):
        while HeartbeatProbe(valkey_url, "worker-2")(os.getpid()) is not None:
            pass
        assert HeartbeatProbe(valkey_url, "worker")(os.getpid()) == "no heartbeat yet"


def test_redis_and_http_probes_say_why_not():
    port = free_port()
    assert "refused" in (RedisProbe(f"redis://127.0.0.1:{port}/0")(0) or "")
    assert (
        HttpProbe(f"http://127.0.0.1:{port}/ready")(0)
        == f"nothing listens at http://127.0.0.1:{port}/ready yet"
    )


def test_flower_answers_under_the_command_of_the_stack(start, tmp_path):  # noqa: F811
    ports = Ports.derive(
        0, {name: free_port() for name in ("api", "policy", "dashboard", "flower", "engine", "valkey")}
    )
    plan = Plan(tmp_path, ports, load_or_create(tmp_path, {}), dict(os.environ))
    flower = next(spec for spec in processes(plan) if spec.name == "flower")
    run = f"import os\nos.environ['CELERY_BROKER_URL'] = {plan.redis_url!r}\n"
    run += f"os.execv({flower.argv[0]!r}, {list(flower.argv)!r})"
    stack = start(
        processes=[
            {"name": "valkey", "port": ports.valkey},
            {
                "name": "flower",
                "port": ports.flower,
                "code": run,
                "path": "/healthcheck",
                "after": ["valkey"],
            },
        ]
    )
    stack.until("stack.ready")
    assert stack.stop() == 0
