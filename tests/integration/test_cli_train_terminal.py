"""`headrace train` on a pseudo-terminal: what a person is asked, answers, and reads.

`HEADRACE_WRITE_GOLDEN=1 pytest tests/integration/test_cli_train_terminal.py` writes the session's transcript anew.
"""

from __future__ import annotations

import difflib
import os
import re
import stat
from pathlib import Path

import pytest
from tests.integration.running_cli import (
    APP_KEYS,
    KEY,
    backend,
    env_file,
    environ,
    policy,
    rl_config,
    sft_config,
    task_app,
    terminal,
)

from headrace.contracts.job import JobStatus
from headrace.store.tables import EnvironmentKey, Job

__all__ = ["backend", "environ", "policy", "task_app", "terminal"]
pytestmark = pytest.mark.integration
GOLDEN = Path(__file__).parent / "golden" / "train_session.txt"


@pytest.fixture(autouse=True)
def app_key(environ):
    """The task app's key is in the shell, but for the tests that are about env files."""
    environ["ENVIRONMENT_API_KEY"] = APP_KEYS[0]


def config_of(backend, job_id: str) -> dict:
    with backend.store.read() as session:
        return session.get_one(Job, job_id).config


def forget_keys(backend) -> None:
    from sqlalchemy import delete

    with backend.store.write() as session:
        session.execute(delete(EnvironmentKey))


def normalised(text: str, *hosts: tuple[str, str]) -> list[str]:
    """Host, key, ids and times replaced by their names; what a person typed stays."""
    for host, name in hosts:
        text = text.replace(host, name)
    text = re.sub(r"job_[0-9a-f]{16}", "<job>", text)
    text = re.sub(r"\(key \S{1,4}\.\.\.\)", "(key <prefix>...)", text)
    text = re.sub(r"^\[\d\d:\d\d\]", "[mm:ss]", text, flags=re.MULTILINE)
    return text.splitlines()


def test_a_session_reads_line_by_line_like_the_documented_one(terminal, environ, backend, task_app, policy):
    del environ["ENVIRONMENT_API_KEY"]
    forget_keys(backend)
    env_file(HEADRACE_API_KEY="hr_of-another-installation")
    first, *others = APP_KEYS
    env_file(
        "keys/.env",
        HEADRACE_API_KEY=KEY,
        ENVIRONMENT_API_KEY=first,
        ENVIRONMENT_API_KEY_ALIASES=",".join(others),
    )
    rl_config(task_app, tags='note = "first"\napi_key = "sk-of-a-judge"')
    address = f'task_url = "{task_app}"'
    Path("rl.toml").write_text(
        Path("rl.toml").read_text().replace(address, f'{address}\npolicy_url = "{policy}"')
    )
    session = terminal("train", "--config", "rl.toml", "--poll-interval", "0.2")
    session.expect(r"Choice \[1\]: ")
    session.type("2")
    job_id = session.expect(r"Polling (\S+) \(interval")[1]
    session.expect(r"\[00:\d\d\] queued")
    backend.claim(job_id)
    session.expect(r"\[00:\d\d\] running")
    backend.measure(job_id, 1, reward_mean=0.25, train_loss=0.5)
    session.expect(r"reward=0.25")
    backend.end(job_id, JobStatus.SUCCEEDED, iteration=4, iterations=4, model_id=f"ft:tiny:{job_id}")
    assert session.end() == 0
    hosts = ((backend.url, "http://<api>"), (task_app, "http://<task app>"), (policy, "http://<policy>"))
    found = normalised(session.output, *hosts)
    if os.environ.get("HEADRACE_WRITE_GOLDEN"):
        GOLDEN.write_text("\n".join(found) + "\n")
    wanted = GOLDEN.read_text().splitlines()
    assert found == wanted, "\n".join(difflib.unified_diff(wanted, found, "golden", "found", lineterm=""))
    for secret in (*APP_KEYS, KEY, "sk-of-a-judge"):
        assert secret not in session.output


def test_configs_and_env_files_are_offered_and_wrong_answers_asked_again(terminal, backend, task_app):
    rl_config(task_app)
    rl_config(task_app, "configs/second.toml")
    env_file(HEADRACE_API_KEY=KEY)
    session = terminal("train", "--no-poll")
    session.expect(r"1\) rl.toml \(rl\)\n  2\) configs/second.toml \(rl\)\nChoice \[1\]: ")
    session.type("7")
    session.expect(r"'7' does not fit: give a number from 1 to 2\nChoice \[1\]: ")
    session.type("two")
    session.expect(r"'two' does not fit: give a number from 1 to 2\nChoice \[1\]: ")
    session.type("2")
    session.expect(r"Env files:\n  1\) .env\n  0\) none: the shell's variables alone\nChoice \[1\]: ")
    session.type("0")
    session.expect("Using config: configs/second.toml")
    assert session.end() == 0
    assert "Using env file" not in session.output
    again = terminal("train", "--no-poll")
    again.expect(r"1\) configs/second.toml \(rl\)\n  2\) rl.toml")  # last used first
    again.type("")
    again.expect(r"Env files:")
    again.type("")
    again.expect("Using env file: .env\n")
    again.expect("Using config: configs/second.toml")
    assert again.end() == 0


def test_split_and_seeds_are_offered_where_the_config_is_silent(terminal, backend, task_app):
    session = terminal("train", "--config", rl_config(task_app, rollouts=""), "--no-poll")
    session.expect(r"Splits of the task app:\n  1\) train\n  2\) test\nChoice \[1\]: ")
    session.type("2")
    session.expect(r"Training seeds \(first-last\) \[20-29\]: ")
    session.type("a few")
    session.expect(r"'a few' does not fit: write the first and the last seed, like 0-99\n")
    session.type("20-900")
    session.expect(
        r"'20-900' does not fit: seed 900 is outside the task app's seed_range of split 'test' \[20, 29\]"
    )
    session.type("22-25")
    job_id = session.expect(r'"job_id": "(job_[0-9a-f]+)"')[1]
    assert session.end() == 0
    rollouts = config_of(backend, job_id)["training"]["rollouts"]
    assert (rollouts["split"], rollouts["seeds"]) == ("test", {"start": 22, "count": 4})


def test_a_dataset_is_offered_and_its_upload_shown(terminal, backend):
    sft_config(rows=3)
    Path("b.jsonl").write_text(Path("train.jsonl").read_text().replace("+2", "+3"))
    session = terminal("train", "--config", sft_config(data=None), "--no-poll", term="xterm")
    session.expect(
        r"names no dataset; chat JSONL found here:\n  1\) b.jsonl\n  2\) train.jsonl\nChoice \[1\]: "
    )
    session.type("1")
    session.expect(r"Uploading b.jsonl \(3 conversations, ")
    session.expect("bytes")  # the bar
    session.expect(r"Uploaded as (file_\w+)")
    assert session.end() == 0


def test_a_terminal_that_can_draw_gets_the_live_view(terminal, backend):
    session = terminal("train", "--config", sft_config(rows=9), "--poll-interval", "0.2", term="xterm")
    job_id = session.expect(r"Polling (\S+) \(interval")[1]
    session.expect(r"\[00:\d\d\] queued")
    backend.claim(job_id)
    session.expect(r"\[00:\d\d\] running")
    for step in (1, 2, 3):
        backend.measure(job_id, step, train_loss=4.0 - step)
    session.expect("▁|█")
    backend.end(job_id, JobStatus.SUCCEEDED, iteration=3, iterations=3)
    session.expect("━")
    session.expect("Final status: succeeded")
    assert session.end() == 0


@pytest.mark.parametrize("answer", ["y", "n"])
def test_a_key_is_made_when_a_person_agrees(terminal, environ, backend, task_app, answer):
    del environ["ENVIRONMENT_API_KEY"]
    forget_keys(backend)
    env_file("mine.env", OTHER="1")
    session = terminal("train", "--config", rl_config(task_app), "--env-file", "mine.env", "--no-poll")
    session.expect(r"No ENVIRONMENT_API_KEY is known. Make one and write it to mine.env\? \[y/N\]: ")
    session.type(answer)
    assert session.end() == 1
    text = Path("mine.env").read_text()
    if answer == "n":
        assert text == "OTHER=1\n"
        assert "wants a key: set ENVIRONMENT_API_KEY" in session.output
        return
    assert re.fullmatch(r"OTHER=1\nENVIRONMENT_API_KEY=[0-9a-f]{64}\n", text)
    assert stat.S_IMODE(Path("mine.env").stat().st_mode) == 0o600
    assert "`headrace serve APP --env-file mine.env`" in session.output


@pytest.mark.parametrize(
    ("term", "variables", "mark"),
    [
        ("xterm", {}, "\x1b[31m\x1b[1merror:\x1b[0m"),
        ("xterm", {"NO_COLOR": "1"}, "error:"),
        ("dumb", {}, "error:"),
    ],
)
def test_an_error_is_coloured_where_the_terminal_can_and_its_user_wants_it(
    terminal, environ, term, variables, mark
):
    environ.pop("NO_COLOR", None)
    session = terminal("jobs", "show", "job_none", term=term, **variables)
    assert session.end() == 1
    assert session.output.startswith(f"{mark} ")


STAGES = {
    "config": ((), "Configs:"),
    "env file": (("--config", "rl.toml"), "Env files:"),
    "split": (("--config", "rl.toml", "--env-file", ".env"), "Splits of the task app:"),
}


@pytest.mark.parametrize("stage", STAGES)
def test_an_interruption_before_the_submission_leaves_nothing(terminal, backend, task_app, stage):
    rl_config(task_app, rollouts="")
    env_file(HEADRACE_API_KEY=KEY)
    arguments, heading = STAGES[stage]
    before = backend.n_jobs()
    session = terminal("train", *arguments)
    session.expect(heading + r"\n(?s:.*)Choice \[1\]: ")
    session.interrupt()
    assert session.end() == 130
    assert "error: interrupted; nothing was submitted" in session.output
    assert backend.n_jobs() == before


def test_an_interruption_while_a_job_is_followed_says_how_to_go_on_and_what_was_skipped(terminal, backend):
    first, second = sft_config("a.toml", rows=11), sft_config("b.toml", rows=11)
    session = terminal("train", "--config", first, "--config", second)
    job_id = session.expect(r"Polling (\S+) \(interval")[1]
    session.expect("queued")
    session.interrupt()
    assert session.end() == 130
    assert "warning: skipped: b.toml" in session.output
    assert f"job {job_id} goes on: follow it with `headrace jobs follow {job_id}`" in session.output
    backend.claim(job_id)  # it was left as it was
