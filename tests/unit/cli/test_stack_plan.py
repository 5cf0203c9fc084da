"""Ports, secrets, logs, backoff and the environment of each process."""

import json
import stat

import pytest

from headrace.errors import ConfigError, Conflict
from headrace_cli.stack.assemble import Plan, processes, without_password
from headrace_cli.stack.backoff import Backoff
from headrace_cli.stack.logs import KEPT, last_line, log_file, rotate
from headrace_cli.stack.ports import Ports, require_free
from headrace_cli.stack.secrets import load_or_create


def plan(tmp_path, environ=None, **more) -> Plan:
    held = load_or_create(tmp_path, {})
    return Plan(tmp_path, Ports.derive(9000, {}), held, environ or {}, **more)


def mode(path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_ports_follow_the_base_unless_given():
    assert Ports.derive(9000, {}) == Ports(9000, 9001, 9002, 9003, 9004, 9005)
    assert Ports.derive(9000, {"engine": 1234}).engine == 1234


def test_one_port_for_two_processes_is_refused():
    with pytest.raises(Conflict, match="api and flower would both listen on port 9000"):
        require_free({"api": 9000, "flower": 9000})


def test_secrets_are_made_once_and_readable_by_their_owner_only(tmp_path):
    made = load_or_create(tmp_path, {})
    assert made.api_key.startswith("hr_")
    assert len(made.api_key) == len("hr_") + 48
    assert len(made.secret_key) == 64
    assert mode(tmp_path / "api_key") == mode(tmp_path / "secrets.json") == 0o600
    (tmp_path / "api_key").chmod(0o644)
    assert load_or_create(tmp_path, {}) == made
    assert mode(tmp_path / "api_key") == 0o600


def test_secrets_of_the_environment_win_and_are_not_kept(tmp_path):
    made = load_or_create(tmp_path, {})
    assert load_or_create(tmp_path, {"HEADRACE_SECRET_KEY": "ab" * 32}).secret_key == "ab" * 32
    assert load_or_create(tmp_path, {}) == made


@pytest.mark.parametrize("text", ["{", "[]", "3"])
def test_a_broken_secrets_file_is_refused_and_left_alone(tmp_path, text):
    (tmp_path / "secrets.json").write_text(text)
    with pytest.raises(ConfigError, match=r"secrets\.json"):
        load_or_create(tmp_path, {})
    assert (tmp_path / "secrets.json").read_text() == text


def test_each_process_gets_its_own_secrets_and_no_others(tmp_path):
    environ = {"ENVIRONMENT_API_KEY": "env", "HEADRACE_API_KEY": "outside", "PATH": "/bin"}
    held = {
        "HEADRACE_SECRET_KEY": "secret_key",
        "HEADRACE_WORKER_TOKEN": "worker_token",
        "HEADRACE_TRAINER_TOKEN": "trainer_token",
    }
    found = {
        spec.name: {held[name] for name in held if name in spec.env}
        for spec in processes(plan(tmp_path, environ))
    }
    assert found["worker"] == {"secret_key", "worker_token"}
    assert found["policy"] == {"worker_token", "trainer_token"}
    assert found["valkey"] == found["dashboard"] == found["flower"] == found["recorder"] == set()
    for spec in processes(plan(tmp_path, environ)):
        assert "ENVIRONMENT_API_KEY" not in spec.env
        assert spec.env.get("HEADRACE_API_KEY") != "outside"
        assert ("HEADRACE_BOOTSTRAP_KEY" in spec.env) == (spec.name == "api")
        assert spec.env["PATH"] == "/bin"
        assert spec.env["HEADRACE_HOME"] == str(tmp_path)


def test_everything_waits_for_valkey_and_what_reads_tables_for_the_api(tmp_path):
    after = {spec.name: spec.after for spec in processes(plan(tmp_path))}
    assert after.pop("valkey") == ()
    assert all("valkey" in names for names in after.values())
    assert {name for name, names in after.items() if "api" in names} == {"recorder", "trainer", "evaluator"}


def test_an_outside_redis_replaces_valkey_and_its_password_is_not_shown(tmp_path):
    chosen = plan(tmp_path, {"REDIS_URL": "redis://:pw@far:6379/0"})
    assert "valkey" not in {spec.name for spec in processes(chosen)}
    assert "valkey" not in chosen.wanted_ports
    assert chosen.addresses["redis"] == "redis://***@far:6379/0"
    assert all("pw" not in " ".join(spec.argv) for spec in processes(chosen))
    assert without_password("redis://far/0") == "redis://far/0"


def test_workers_flower_and_dashboard_are_as_asked_for(tmp_path):
    names = [s.name for s in processes(plan(tmp_path, n_workers=3, with_flower=False, with_dashboard=False))]
    assert [name for name in names if name.startswith("worker")] == ["worker", "worker-2", "worker-3"]
    assert not {"flower", "dashboard"} & set(names)


def test_trainer_and_policy_use_one_thread_unless_told_otherwise(tmp_path):
    for environ, threads in (({}, "1"), ({"OMP_NUM_THREADS": "8"}, "8")):
        env = {spec.name: spec.env for spec in processes(plan(tmp_path, environ))}
        assert env["trainer"]["OMP_NUM_THREADS"] == env["policy"]["OMP_NUM_THREADS"] == threads


def test_backoff_doubles_to_its_bound_and_starts_over_after_a_healthy_minute():
    backoff = Backoff()
    assert [backoff.delay(5) for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    assert [backoff.delay(60), backoff.delay(0)] == [1, 2]


def test_logs_are_rotated_at_start_and_the_oldest_dropped(tmp_path):
    path = log_file(tmp_path, "api")
    for number in range(KEPT + 2):
        rotate(path)
        path.write_text(f"start {number}\n")
    names = sorted(file.name for file in path.parent.iterdir())
    assert names == ["api.log", *(f"api.log.{n}" for n in range(1, KEPT + 1))]
    assert path.with_name("api.log.1").read_text() == f"start {KEPT}\n"


def test_the_last_line_that_says_something_is_found(tmp_path):
    path = tmp_path / "x.log"
    assert last_line(path) == ""
    path.write_text("first\n" * 5000 + "ValueError: no such model\n\n")
    assert last_line(path) == "ValueError: no such model"


def test_the_api_key_never_stands_in_the_state_or_in_a_command(tmp_path):
    chosen = plan(tmp_path)
    assert chosen.secrets.api_key not in json.dumps(chosen.addresses)
    assert all(chosen.secrets.api_key not in " ".join(spec.argv) for spec in processes(chosen))
