"""Each option of `headrace train` for what it does, without a terminal: real API, real task app, real files."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.integration.running_cli import (
    APP_KEYS,
    CHAT,
    KEY,
    backend,
    cli,
    env_file,
    environ,
    policy,
    rl_config,
    sft_config,
    task_app,
)

from headrace.contracts.job import JobStatus
from headrace.store.files import get_file
from headrace.store.tables import Job
from headrace_cli.submission import idempotency_key

__all__ = ["backend", "cli", "environ", "policy", "task_app"]
pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def app_key(environ, monkeypatch):
    monkeypatch.setenv("ENVIRONMENT_API_KEY", APP_KEYS[0])


def job_of(backend, job_id: str) -> Job:
    with backend.store.read() as session:
        return session.get_one(Job, job_id)


def submitted(cli, *arguments: str) -> dict:
    code, out, err = cli("train", *arguments, "--no-poll", "--json")
    assert code == 0, err
    return json.loads(out)


def test_without_a_config_the_option_is_named_with_what_lies_here(cli, task_app):
    rl_config(task_app, "configs/walk.toml")
    code, out, err = cli("train")
    assert (code, out) == (2, "")
    assert (
        "missing option '--config': without a terminal nothing is asked; found here: configs/walk.toml" in err
    )


def test_each_dataset_line_is_checked_before_an_api_is_needed(cli, monkeypatch):
    config = sft_config()
    Path("train.jsonl").write_text(CHAT + "\n{not json}\n" + '{"messages": []}\n')
    monkeypatch.setenv("HEADRACE_API_URL", "http://127.0.0.1:1")
    code, _, err = cli("train", "--config", config)
    assert code == 2
    assert "line 3: is not valid JSON" in err
    assert "line 4: `messages` must be a list of at least one message" in err


def test_examples_sends_the_first_conversations_only(cli, backend):
    job = submitted(cli, "--config", sft_config(rows=5), "--examples", "2")
    with backend.store.read() as session:
        row = get_file(session, "local", job_of(backend, job["job_id"]).data["training_file_id"])
    assert (row.filename, row.n_rows) == ("train.first-2.jsonl", 2)


def test_a_validation_file_travels_and_a_repeat_uploads_nothing(cli, backend):
    config = sft_config(rows=3, more='[data]\nvalidation_path = "val.jsonl"\n')
    Path("val.jsonl").write_text(CHAT.replace("2+2", "held out"))
    code, out, err = cli("train", "--config", config, "--no-poll")
    assert code == 0, err
    assert "Uploading train.jsonl (3 conversations, " in out
    assert "Uploading val.jsonl (1 conversation, " in out
    code, out, _ = cli("train", "--config", config, "--no-poll")
    assert code == 0
    assert "Uploading" not in out
    assert out.count("which has the same content as") == 2
    job = submitted(cli, "--config", config)
    assert set(job_of(backend, job["job_id"]).data) >= {"training_file_id", "validation_file_id"}


def test_a_file_that_the_api_still_works_on_is_waited_for_and_bounded_by_the_poll_time_out(cli, backend):
    config = sft_config(rows=4)
    file_id = job_of(backend, submitted(cli, "--config", config)["job_id"]).data["training_file_id"]

    def state(value: str) -> None:
        with backend.store.write() as session:
            get_file(session, "local", file_id).status = value

    state("processing")
    code, out, err = cli("train", "--config", config, "--poll-timeout", "0.2", "--poll-interval", "0.1")
    assert code == 3
    assert f"Waiting for {file_id}: processing" in out
    assert f"file {file_id} is still processing after 0.2 s; the same command takes it up again" in err
    timer = threading.Timer(0.5, state, ["ready"])
    timer.start()
    code, out, _ = cli("train", "--config", config, "--no-poll", "--poll-interval", "0.1")
    timer.join()
    assert code == 0
    assert f"File {file_id} is ready" in out


def test_dataset_model_and_type_win_over_the_config(cli, backend):
    config = sft_config(data=None)
    Path(config).write_text('[job]\nmodel = "nothing"\n')
    Path("other.jsonl").write_text(CHAT)
    job = submitted(cli, "--config", config, "--type", "sft", "--dataset", "other.jsonl", "--model", "tiny")
    assert (job["type"], job["model"]) == ("sft", "tiny")
    code, _, err = cli("train", "--config", config, "--no-poll")
    assert code == 2
    assert "does not say what job it is" in err


def test_a_type_that_contradicts_the_config_is_refused(cli, task_app):
    code, _, err = cli("train", "--config", rl_config(task_app), "--type", "sft", "--no-poll")
    assert code == 2
    assert "rl.toml is the config of an RL job; leave out --type sft" in err
    code, _, err = cli("eval", "--config", "rl.toml", "--no-poll")
    assert code == 2
    assert "train with `headrace train --config rl.toml`; an evaluation has a config of its own" in err


@pytest.mark.parametrize("option", [["--dataset", "x.jsonl"], ["--examples", "3"]])
def test_options_of_sft_are_refused_for_rl(cli, task_app, option):
    code, _, err = cli("train", "--config", rl_config(task_app), *option)
    assert code == 2
    assert f"{option[0]} is for SFT jobs; rl.toml is of type rl" in err


@pytest.mark.parametrize("option", [["--task-url", "http://127.0.0.1:1"], ["--mint"]])
def test_options_of_rl_are_refused_for_sft(cli, option):
    code, _, err = cli("train", "--config", sft_config(), *option)
    assert code == 2
    assert f"{option[0]} is for RL and evaluation jobs; sft.toml is of type sft" in err


def test_task_url_wins_over_the_variable_and_the_config(cli, task_app, monkeypatch):
    config = rl_config("http://127.0.0.1:9")
    monkeypatch.setenv("TASK_APP_URL", "http://127.0.0.1:8")
    job = submitted(cli, "--config", config, "--task-url", task_app)
    assert job["status"] == "queued"
    monkeypatch.setenv("TASK_APP_URL", task_app)
    assert submitted(cli, "--config", config)["status"] == "queued"


def test_env_files_are_merged_in_order_and_the_shells_value_is_named_when_it_wins(cli, task_app, monkeypatch):
    monkeypatch.delenv("ENVIRONMENT_API_KEY")
    monkeypatch.setenv("HEADRACE_API_KEY", KEY)
    one = env_file("1.env", ENVIRONMENT_API_KEY="wrong-key-000000", HEADRACE_API_KEY="hr_not-this-one")
    two = env_file("2.env", ENVIRONMENT_API_KEY=APP_KEYS[1])
    code, out, err = cli(
        "train", "--config", rl_config(task_app), "--env-file", one, "--env-file", two, "--no-poll"
    )
    assert code == 0, err
    assert out.splitlines()[:3] == [
        "Using env file: 1.env",
        "Using env file: 2.env",
        "The shell's value wins over the file's: HEADRACE_API_KEY",
    ]
    assert "not-this-one" not in out + err
    assert Path("1.env").read_text().count("\n") == 2


def test_every_key_of_the_environment_reaches_the_api_and_is_tried_there(cli, task_app, monkeypatch):
    monkeypatch.setenv("ENVIRONMENT_API_KEY_ALIASES", f"{APP_KEYS[1]}, rotated-out-key")
    code, out, err = cli("train", "--config", rl_config(task_app), "--no-poll")
    assert code == 0, err
    verification = next(line for line in out.splitlines() if line.startswith("Verification OK"))
    assert "400" in verification or "401" in verification
    assert verification.count("200") >= 2
    for key in (*APP_KEYS, "rotated-out-key"):
        assert key not in out + err


def test_the_shell_needs_no_key_when_the_api_holds_one(cli, task_app, monkeypatch):
    submitted(cli, "--config", rl_config(task_app))
    monkeypatch.delenv("ENVIRONMENT_API_KEY")
    code, out, err = cli("train", "--config", "rl.toml", "--no-poll")
    assert code == 0, err
    assert "Task app healthy (asked without a key; the API has one that it takes)" in out


def test_a_refused_key_is_reported_by_its_beginning_status_and_cause(cli, task_app, backend, monkeypatch):
    monkeypatch.setenv("ENVIRONMENT_API_KEY", "stale-key-0123456789")
    monkeypatch.setenv("ENVIRONMENT_API_KEY_ALIASES", "older-key-0123456789")
    before = backend.n_jobs()
    code, _, err = cli("train", "--config", rl_config(task_app), "--no-poll")
    assert code == 1
    lines = [line for line in err.splitlines() if "from here" in line]
    assert [line.split(" from here: ")[0] for line in lines] == [
        "warning:   key stal...",
        "warning:   key olde...",
    ]
    assert all("at /task_info: the task app runs with another ENVIRONMENT_API_KEY" in line for line in lines)
    assert "0123456789" not in err
    assert backend.n_jobs() == before


def test_backend_wins_over_the_variables(cli, backend, monkeypatch):
    monkeypatch.setenv("HEADRACE_API_URL", "http://127.0.0.1:1")
    assert submitted(cli, "--config", sft_config(), "--backend", f"{backend.url}/api")["status"] == "queued"
    monkeypatch.delenv("HEADRACE_API_URL")
    monkeypatch.setenv("SYNTH_BACKEND_URL_OVERRIDE", "dev")
    monkeypatch.setenv("DEV_BACKEND_URL", backend.url)
    assert submitted(cli, "--config", "sft.toml")["status"] == "queued"


def test_an_experimental_model_needs_the_flag_or_the_variable(cli, monkeypatch):
    config = sft_config()
    code, _, err = cli("train", "--config", config, "--model", "odd", "--no-poll")
    assert code != 0
    assert "experimental" in err
    assert submitted(cli, "--config", config, "--model", "odd", "--allow-experimental")["status"] == "queued"
    monkeypatch.setenv("SDK_EXPERIMENTAL", "1")
    assert submitted(cli, "--config", config, "--model", "odd")["status"] == "queued"
    code, *_ = cli("train", "--config", config, "--model", "odd", "--no-allow-experimental", "--no-poll")
    assert code != 0


def test_one_idempotency_key_is_made_distinct_for_several_configs(cli, backend):
    first, second = sft_config("a.toml"), sft_config("b.toml", more="[hyperparameters]\nn_epochs = 2\n")
    both = ("train", "--config", first, "--config", second, "--idempotency", "K", "--no-poll")
    before = backend.n_jobs()
    code, out, err = cli(*both)
    assert code == 0, err
    keys = [line.removeprefix("Idempotency-Key: ") for line in out.splitlines() if "Idempotency-Key" in line]
    assert len(set(keys)) == 2
    assert all(key.startswith("K-") and len(key) == len("K-") + 8 for key in keys)
    assert cli(*both)[0] == 0
    assert backend.n_jobs() == before + 2


def test_the_idempotency_key_is_the_payloads_hash(cli, task_app):
    code, out, err = cli(
        "train", "--config", rl_config(task_app), "--config", "rl.toml", "--idempotency", "K", "--dry-run"
    )
    assert code == 0
    shown = json.loads(out[: out.index("}\n{") + 1])
    shown["data"]["config_toml"] = Path("rl.toml").read_text()
    assert f"Idempotency-Key: {idempotency_key('K', shown, 2)}" in err
    digest = hashlib.sha256(json.dumps(shown, sort_keys=True).encode()).hexdigest()
    assert f"K-{digest[:8]}" in err


def test_the_first_config_that_fails_ends_the_run_and_names_the_skipped(cli, backend):
    configs = [sft_config(f"{name}.toml") for name in "abc"]
    before = backend.n_jobs()
    arguments = [word for config in configs for word in ("--config", config)]
    code, _, err = cli("train", *arguments, "--poll-timeout", "0.2", "--poll-interval", "0.1")
    assert code == 3
    assert "warning: skipped: b.toml, c.toml" in err
    assert backend.n_jobs() == before + 1


def test_all_configs_are_validated_before_the_first_is_submitted(cli, backend):
    Path("bad.toml").write_text('type = "sft"\n[jobs]\nmodel = "tiny"\n')
    before = backend.n_jobs()
    code, _, err = cli("train", "--config", sft_config(), "--config", "bad.toml")
    assert code == 2
    assert "bad.toml: unknown key jobs: did you mean `job`?" in err
    assert backend.n_jobs() == before


def test_a_dry_run_shows_the_payload_every_default_and_the_suggestions_and_creates_nothing(
    cli, backend, task_app, monkeypatch
):
    monkeypatch.setenv("ENVIRONMENT_API_KEY", APP_KEYS[2])
    config = rl_config(task_app, tags=f'api_key = "sk-0123456789"\nnote = "with {APP_KEYS[2]}"')
    before = backend.n_jobs()
    code, out, err = cli("train", "--config", config, "--config", config, "--dry-run")
    assert code == 0, err
    payloads = out.split("\n}\n")
    assert len(payloads) == 3
    tags = json.loads(payloads[0] + "}")["data"]["config"]["tags"]
    assert tags == {"api_key": "***", "note": "with ***"}
    assert '"learning_rate": 1e-06' in err
    assert '"max_attempts": 3' in err
    assert "sk-0123456789" not in out + err
    assert f"POST {backend.url}/api/v1/rl/jobs (dry run: not sent, nothing was created)" in err
    assert backend.n_jobs() == before
    line = json.loads(cli("train", "--config", config, "--dry-run", "--json")[1])
    assert line["suggestions"] == {
        "splits": ["train", "test"],
        "seeds": {"start": 0, "count": 20},
        "topologies": line["suggestions"]["topologies"],
        "pools": line["suggestions"]["pools"],
    }
    assert line["suggestions"]["topologies"]
    assert line["resolved"]["training"]["learning_rate"] == 1e-6


@pytest.mark.parametrize(
    ("rollouts", "tables", "sentence"),
    [
        ("seeds = [3, 900]", {}, "[training.rollouts] seed 900 is outside the task app's seed_range"),
        ('split = "trian"', {}, "split 'trian' is not one of the task app's: train, test"),
        (
            "seeds = [1]",
            {"backend": 'topology_id = "ring"'},
            "[backend] topology_id = 'ring' is not known; topo",
        ),
        ("seeds = [1]", {"backend": 'compute_pool = "moon"'}, "compute_pool = 'moon' is not known; pools: "),
        (
            'seeds = [1]\nsplit = "train"',
            {"evaluation": 'every_n_iters = 1\nseeds = [5]\nsplit = "test"'},
            "[evaluation] seed 5 is outside the task app's seed_range of split 'test' [20, 29]",
        ),
    ],
)
def test_what_the_task_app_or_the_pools_do_not_have_is_refused_with_what_they_have(
    cli, backend, task_app, rollouts, tables, sentence
):
    before = backend.n_jobs()
    code, out, err = cli(
        "train", "--config", rl_config(task_app, rollouts=rollouts, **tables), "--no-poll", "--json"
    )
    assert code == 2
    assert sentence in err
    told = json.loads(out)
    assert sentence in told["error"]
    assert told["suggestions"]["splits"] == ["train", "test"]
    assert told["suggestions"]["seeds"] == {"start": 0, "count": 20}
    assert backend.n_jobs() == before


def test_evaluation_seeds_among_the_training_seeds_are_warned_of(cli, task_app):
    config = rl_config(task_app, rollouts='split = "train"', evaluation="every_n_iters = 1\nseeds = [3, 4]")
    code, _, err = cli("train", "--config", config, "--no-poll")
    assert code == 0
    assert "warning: 2 evaluation seeds are among the training seeds (3, 4)" in err


def test_a_policy_that_the_task_app_cannot_reach_is_named(cli, task_app, policy):
    address = 'task_url = "{}"\npolicy_url = "{}"'
    Path(rl_config(task_app)).write_text(
        Path("rl.toml").read_text().replace(f'task_url = "{task_app}"', address.format(task_app, policy))
    )
    code, out, err = cli("train", "--config", "rl.toml", "--no-poll")
    assert code == 0, err
    assert f"Policy callback OK ({policy})" in out
    Path("rl.toml").write_text(Path("rl.toml").read_text().replace(policy, "http://127.0.0.1:1"))
    code, _, err = cli("train", "--config", "rl.toml", "--no-poll")
    assert code == 0
    assert (
        f"policy callback failed: the task app at {task_app} cannot reach the policy at http://127.0.0.1:1"
        in err
    )


def test_no_poll_ends_after_the_submission_and_says_how_to_follow(cli):
    code, out, _ = cli("train", "--config", sft_config(), "--no-poll")
    assert code == 0
    assert "Polling" not in out
    assert out.splitlines()[-1].startswith("Not followed: follow it with `headrace jobs follow job_")


@pytest.mark.parametrize(
    ("status", "code", "sentence"),
    [
        (JobStatus.SUCCEEDED, 0, ""),
        (JobStatus.FAILED, 1, "failed: the disk is full"),
        (JobStatus.CANCELLED, 1, "cancelled"),
    ],
)
def test_the_exit_code_says_how_the_job_ended(cli, backend, status, code, sentence):
    config = sft_config(rows=7)
    job_id = submitted(cli, "--config", config, "--idempotency", f"end-{status}")["job_id"]
    backend.claim(job_id)
    backend.end(job_id, status, error="the disk is full" if status is JobStatus.FAILED else None)
    found, out, err = cli("train", "--config", config, "--idempotency", f"end-{status}")
    assert found == code
    assert f"Final status: {status}" in out
    assert "Response 200: " in out
    assert f"Polling {job_id} (interval=5s, timeout=3600s)" in out
    assert sentence in err


MINTED = "Made ENVIRONMENT_API_KEY "


def _with_an_api_without_keys(backend):
    """The keys that earlier tests stored would open the task app."""
    from sqlalchemy import delete

    from headrace.store.tables import EnvironmentKey

    with backend.store.write() as session:
        session.execute(delete(EnvironmentKey))


def test_a_missing_key_is_named_with_the_command_and_made_only_when_asked(
    cli, backend, task_app, monkeypatch
):
    _with_an_api_without_keys(backend)
    monkeypatch.delenv("ENVIRONMENT_API_KEY")
    config = rl_config(task_app)
    code, _, err = cli("train", "--config", config, "--no-poll")
    assert code == 1
    assert "wants a key: set ENVIRONMENT_API_KEY" in err
    assert "`headrace train --mint --env-file FILE`" in err
    code, _, err = cli("train", "--config", config, "--no-poll", "--mint")
    assert code == 2
    assert "--mint needs a file to write the new key to: give --env-file FILE" in err
    Path("keys.env").write_text("# mine\nexport OTHER='x y'\nENVIRONMENT_API_KEY=\nLAST=1")
    Path("keys.env").chmod(0o644)
    code, out, err = cli("train", "--config", config, "--no-poll", "--mint", "--env-file", "keys.env")
    assert code == 1
    assert (
        "was started without the new key: start it again with it, as in `headrace serve APP --env-file keys.env`"
        in err
    )
    *others, line = Path("keys.env").read_text().splitlines()
    name, _, key = line.partition("=")
    assert others == ["# mine", "export OTHER='x y'", "LAST=1"]
    assert (name, len(bytes.fromhex(key))) == ("ENVIRONMENT_API_KEY", 32)
    assert stat.S_IMODE(os.stat("keys.env").st_mode) == 0o600
    assert MINTED + key[:4] in out
    assert key not in out + err
    code, out, _ = cli("train", "--config", config, "--no-poll", "--mint", "--env-file", "keys.env")
    assert code == 1
    assert MINTED not in out


def test_an_api_key_is_taken_from_the_key_file_of_a_loopback_api_only(cli, monkeypatch):
    assert submitted(cli, "--config", sft_config())["status"] == "queued"
    code, _, err = cli("train", "--config", "sft.toml", "--backend", "http://api.invalid")
    assert code == 1
    assert "no API key for http://api.invalid: set HEADRACE_API_KEY (or SYNTH_API_KEY)" in err
    assert "`headrace keys create NAME` makes one" in err


def test_nothing_is_asked_without_a_terminal(environ, task_app):
    env_file(ENVIRONMENT_API_KEY=APP_KEYS[0])
    rl_config(task_app, rollouts="")
    done = subprocess.run(
        [sys.executable, "-m", "headrace_cli", "train", "--config", "rl.toml", "--no-poll"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
        env={**environ, "ENVIRONMENT_API_KEY": APP_KEYS[0]},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Choice" not in done.stdout
    assert "Using env file" not in done.stdout
