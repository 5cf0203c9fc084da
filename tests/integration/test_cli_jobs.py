"""The commands against a real API process, a real Valkey and a real task app."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from tests.conftest import free_port
from tests.fakes.server import serving

from headrace.contracts.job import JobStatus
from headrace.store import jobs, metrics
from headrace.store.session import Store
from headrace_cli.main import run

pytestmark = pytest.mark.integration

KEY = "hr_" + "ab" * 24
APP_KEY = "environment-key-of-the-task-app"
CHAT = '{"messages": [{"role": "user", "content": "2+2"}, {"role": "assistant", "content": "4"}]}\n'


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


@pytest.fixture(scope="module")
def backend(_valkey_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    home, port = tmp_path_factory.mktemp("home"), free_port()
    model = home / "tiny"
    model.mkdir()
    (model / "config.json").write_text('{"model_type": "qwen3", "max_position_embeddings": 512}')
    (home / "models.toml").write_text(f'[models."tiny"]\npath = "{model}"\n')
    (home / "api_key").write_text(KEY + "\n")
    environ = os.environ | {
        "HEADRACE_HOME": str(home),
        "HEADRACE_API_PORT": str(port),
        "HEADRACE_BOOTSTRAP_KEY": KEY,
        "HEADRACE_SECRET_KEY": "cd" * 32,
        "REDIS_URL": _valkey_server,
        "DATABASE_URL": "",
    }
    log = (home / "api.log").open("wb")
    process = subprocess.Popen([sys.executable, "-m", "headrace_api"], env=environ, stdout=log, stderr=log)
    url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + 60
    while not _answers(url):
        assert process.poll() is None, (home / "api.log").read_text()
        assert time.monotonic() < deadline, (home / "api.log").read_text()
        time.sleep(0.1)
    store = Store(f"sqlite:///{home / 'headrace.db'}")
    yield Backend(url, home, store)
    store.close()
    process.terminate()
    process.wait(timeout=20)


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/ready", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


@pytest.fixture
def cli(backend: Backend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys) -> Callable[..., tuple]:
    """Run a command in an empty folder: (exit code, stdout, stderr)."""
    for name in ("HEADRACE_API_KEY", "SYNTH_API_KEY", "ENVIRONMENT_API_KEY", "TASK_APP_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HEADRACE_HOME", str(backend.home))
    monkeypatch.setenv("HEADRACE_API_URL", backend.url)
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        code = run(arguments)
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


@pytest.fixture
def task_app() -> Iterator[str]:
    """A task app that wants APP_KEY and answers a wrong one with 400, as released ones do."""

    def task_info(request: Request) -> Response:
        if request.headers.get("x-api-key") != APP_KEY:
            return JSONResponse({"detail": {"error": {"code": "unauthorised"}}}, status_code=400)
        return JSONResponse({"taskset": {"id": "fake"}})

    with serving(_app(task_info)) as url:
        yield url


def _app(task_info: Callable[[Request], Response], health: int = 200) -> Starlette:
    def alive(_: Request) -> Response:
        return JSONResponse({"healthy": True}, status_code=health)

    return Starlette(routes=[Route("/health", alive), Route("/task_info", task_info)])


def rl_config(task_url: str) -> str:
    Path("rl.toml").write_text(
        f'[algorithm]\ntype = "online"\n[services]\ntask_url = "{task_url}"\n[model]\nbase = "tiny"\n'
        "[training]\niterations_per_epoch = 4\nbatch_size = 2\ngroup_size = 2\n"
        "[training.rollouts]\nseeds = [1, 2, 3, 4]\n"
    )
    return "rl.toml"


def sft_config() -> str:
    Path("sft.toml").write_text(
        '[algorithm]\ntype = "offline"\n[job]\nmodel = "tiny"\ndata = "train.jsonl"\n'
    )
    Path("train.jsonl").write_text(CHAT)
    return "sft.toml"


def submit(cli, config: str, *more: str) -> dict:
    code, out, err = cli("train", "--config", config, "--no-poll", "--json", *more)
    assert code == 0, err
    return json.loads(out)


def test_an_rl_job_is_submitted_after_the_task_app_has_taken_the_key(cli, backend, task_app):
    Path("keys.env").write_text(f"ENVIRONMENT_API_KEY={APP_KEY}\n")
    code, out, err = cli(
        "train", "--config", rl_config(task_app), "--env-file", "keys.env", "--no-poll", "--json"
    )
    assert code == 0, err
    job = json.loads(out)
    assert (job["type"], job["status"], job["model"]) == ("rl", "queued", "tiny")
    assert "Verification OK (candidates=1, statuses=[200])" in err
    assert APP_KEY not in out + err
    with backend.store.read() as session:
        row = jobs.get_job(session, "local", job["job_id"])
    assert row.config_toml == Path("rl.toml").read_text()


def test_the_same_idempotency_key_gives_the_same_sft_job_and_one_upload(cli):
    config = sft_config()
    first = submit(cli, config, "--idempotency", "again")
    second = submit(cli, config, "--idempotency", "again")
    assert first["job_id"] == second["job_id"]
    names = [row["filename"] for row in json.loads(cli("files", "list", "--json")[1])]
    assert names.count("train.jsonl") == 1
    Path("sft.toml").write_text(Path("sft.toml").read_text() + "[hyperparameters]\nn_epochs = 2\n")
    code, _, err = cli("train", "--config", config, "--idempotency", "again", "--no-poll")
    assert code == 1
    assert err.startswith("error: ")


def test_a_dry_run_prints_the_payload_and_makes_no_job(cli):
    before = cli("jobs", "list", "--json")[1]
    code, out, _ = cli("train", "--config", sft_config(), "--dry-run")
    assert code == 0
    assert json.loads(out)["training_file_id"] == "(id of train.jsonl after its upload)"
    assert cli("jobs", "list", "--json")[1] == before


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (lambda _: PlainTextResponse("no", 401), "wants a key: set ENVIRONMENT_API_KEY"),
        (lambda _: PlainTextResponse("boom", 500), "answers 500 to GET /task_info: boom; look at its log"),
        (lambda _: PlainTextResponse("{"), "answers GET /task_info with something that is not JSON: '{'"),
        (lambda _: JSONResponse([1]), "answers GET /task_info with a list, not an object"),
        (lambda _: PlainTextResponse("?", 404), "GET /task_info with 404, so it is no task app"),
    ],
)
def test_a_bad_task_app_is_one_sentence_and_no_job(cli, answer, sentence):
    before = cli("jobs", "list", "--json")[1]
    with serving(_app(answer)) as url:
        code, out, err = cli("train", "--config", rl_config(url), "--no-poll")
    assert code == 1
    assert "POST" not in out
    *warnings, error = err.splitlines()
    assert all(line.startswith("warning: ") for line in warnings)
    assert error.startswith("error: ")
    assert sentence in error
    assert url in error
    assert cli("jobs", "list", "--json")[1] == before


def test_a_task_app_that_is_down_is_named(cli):
    url = f"http://127.0.0.1:{free_port()}"
    code, _, err = cli("train", "--config", rl_config(url), "--no-poll")
    assert code == 1
    assert f"the task app at {url} does not answer" in err


def test_a_wrong_key_is_shown_by_its_beginning_only(cli, task_app, monkeypatch):
    monkeypatch.setenv("ENVIRONMENT_API_KEY", "wrong-key-0123456789")
    code, _, err = cli("train", "--config", rl_config(task_app), "--no-poll")
    assert code == 1
    assert "refuses the key wron... (400): set ENVIRONMENT_API_KEY" in err
    assert "0123456789" not in err


def test_a_model_that_does_not_exist_is_refused_by_name(cli):
    code, _, err = cli("train", "--config", sft_config(), "--model", "no-such-model", "--no-poll")
    assert code == 2
    assert "no-such-model" in err


def test_a_bad_dataset_line_is_named_and_nothing_is_kept(cli):
    config = sft_config()
    Path("train.jsonl").write_text(CHAT + "{not json}\n")
    before = cli("files", "list", "--json")[1]
    code, _, err = cli("train", "--config", config, "--no-poll")
    assert code == 2
    assert "line 2" in err
    assert cli("files", "list", "--json")[1] == before


def test_a_missing_dataset_is_found_before_anything_is_sent(cli):
    config = sft_config()
    Path("train.jsonl").unlink()
    code, _, err = cli("train", "--config", config, "--backend", "http://127.0.0.1:1")
    assert code == 2
    assert "dataset train.jsonl does not exist" in err


def test_a_followed_job_that_succeeds_ends_with_zero_and_its_last_line(cli, backend):
    job_id = submit(cli, sft_config())["job_id"]
    backend.claim(job_id)
    backend.measure(job_id, 1, train_loss=2.0)
    backend.measure(job_id, 2, train_loss=1.5)
    backend.end(job_id, JobStatus.SUCCEEDED, iteration=2, iterations=2)
    code, out, _ = cli("jobs", "follow", job_id)
    assert code == 0
    assert out.splitlines()[0] == "[00:00] succeeded step 2/2 loss=1.5"


def test_a_followed_job_that_fails_ends_with_one_and_its_reason(cli, backend):
    job_id = submit(cli, sft_config())["job_id"]
    backend.claim(job_id)
    backend.end(job_id, JobStatus.FAILED, error="the disk is full")
    code, _, err = cli("jobs", "follow", job_id)
    assert code == 1
    assert err == f"error: job {job_id} failed: the disk is full\n"


def test_a_job_that_outlasts_the_time_out_ends_with_three_and_goes_on(cli):
    job_id = submit(cli, sft_config())["job_id"]
    code, _, err = cli("jobs", "follow", job_id, "--poll-timeout", "0.3")
    assert code == 3
    assert f"job {job_id} is still queued after 0.3 s; follow it with `headrace jobs follow {job_id}`" in err
    assert json.loads(cli("jobs", "show", job_id, "--json")[1])["status"] == "queued"


def test_an_interrupted_follower_ends_with_130_and_says_how_to_go_on(cli):
    job_id = submit(cli, sft_config())["job_id"]
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace_cli", "jobs", "follow", job_id],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert "queued" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert f"job {job_id} goes on: follow it with `headrace jobs follow {job_id}`" in err


def test_a_cancelled_job_is_told_apart_from_a_failed_one(cli):
    job_id = submit(cli, sft_config())["job_id"]
    assert cli("jobs", "cancel", job_id)[1] == f"job {job_id}: cancelled\n"
    code, _, err = cli("jobs", "follow", job_id)
    assert code == 1
    assert err == f"error: job {job_id} was cancelled\n"


def test_several_configs_stop_at_the_first_that_does_not_succeed(cli):
    config = sft_config()
    Path("second.toml").write_text(Path(config).read_text())
    before = len(json.loads(cli("jobs", "list", "--json")[1]))
    code, _, _ = cli("train", "--config", config, "--config", "second.toml", "--poll-timeout", "0.2")
    assert code == 3
    assert len(json.loads(cli("jobs", "list", "--json")[1])) == before + 1


def test_every_list_speaks_json_and_tables(cli, backend):
    job_id = submit(cli, sft_config())["job_id"]
    backend.measure(job_id, 1, train_loss=2.0)
    lists = [
        ("jobs", "list"), ("jobs", "show", job_id), ("jobs", "events", job_id), ("jobs", "metrics", job_id),
        ("jobs", "ledger", job_id), ("traces", "list", job_id), ("models", "list"),
        ("checkpoints", "list", job_id), ("files", "list"), ("keys", "list"),
    ]  # fmt: skip
    for command in lists:
        code, out, err = cli(*command)
        assert (code, err) == (0, ""), command
        assert out, command
        code, out, err = cli(*command, "--json")
        assert (code, err) == (0, ""), command
        json.loads(out)


def test_keys_are_made_shown_once_listed_by_prefix_and_revoked(cli, backend):
    made = json.loads(cli("keys", "create", "ci", "--json")[1])
    listed = cli("keys", "list", "--json")[1]
    assert made["key"] not in listed
    assert made["key_id"] in listed
    assert cli("keys", "revoke", made["key_id"])[0] == 0
    Path("old.env").write_text(f"HEADRACE_API_KEY={made['key']}\n")
    code, _, err = cli("jobs", "list", "--env-file", "old.env")
    assert code == 1
    assert err.startswith("error: ")


def test_a_missing_environment_key_is_named_before_the_upload(cli):
    code, _, err = cli("keys", "upload-env")
    assert code == 2
    assert "ENVIRONMENT_API_KEY is not set" in err
    Path("keys.env").write_text(f"ENVIRONMENT_API_KEY={APP_KEY}\nENVIRONMENT_API_KEY_ALIASES=other-key-000\n")
    assert cli("keys", "upload-env", "--env-file", "keys.env")[1] == "uploaded 2 keys\n"


def test_an_unknown_job_is_one_sentence(cli):
    code, _, err = cli("jobs", "show", "job_none")
    assert code == 1
    assert "job_none" in err
    assert len(err.splitlines()) == 1


def test_what_init_writes_is_served_and_trained_on(cli, monkeypatch):
    monkeypatch.setenv("ENVIRONMENT_API_KEY", APP_KEY)
    code, out, err = cli("init", "mine")
    assert code == 0, err
    assert "mine/rl.toml" in out
    monkeypatch.chdir("mine")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    server = subprocess.Popen(
        [sys.executable, "-m", "headrace_cli", "serve", "task_app.py:app", "--port", str(port)],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        while not _health(url):
            assert server.poll() is None, server.stderr and server.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        for config in ("rl.toml", "eval.toml"):
            job = submit(cli, config, "--task-url", url, "--model", "tiny")
            assert job["status"] == "queued"
        assert submit(cli, "sft.toml", "--model", "tiny")["status"] == "queued"
    finally:
        server.terminate()
        server.wait(timeout=20)


def _health(url: str) -> bool:
    try:
        httpx.get(f"{url}/health", timeout=5)
    except httpx.HTTPError:
        return False
    return True
