"""The reference client, as published, trains on a whole Headrace: SFT, RL, RL again from what came out."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import Running
from tests.e2e.reference import ReferenceClient, provide
from tests.e2e.reference_requests import check_or_record
from tests.fakes.recording_proxy import RecordingProxy
from tests.fakes.server import serving

from examples.demo.stack import running
from examples.walk import base_model, demonstrations
from headrace.client import ApiClient
from headrace.errors import Conflict

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1800)]

NAME = "Qwen/Qwen3-0.6B"
"""The smallest name that the client lets through; here it stands for a tiny model."""
POSITIONS = 4096
ITERATIONS = 3
ENVIRONMENT_KEY = "7e" * 32

RL = """\
[algorithm]
type = "online"
method = "policy_gradient"
variety = "gspo"

[services]
task_url = "{task_url}"

[compute]
gpu_type = "H100"
gpu_count = 1

[model]
{start}
trainer_mode = "full"
label = "walk"

[rollout]
env_name = "walk"
policy_name = "walk"
max_turns = 2
episodes_per_batch = 64
max_concurrent_rollouts = 64

[training]
num_epochs = 1
iterations_per_epoch = {iterations}
max_turns = 2
batch_size = 8
group_size = 8
learning_rate = 4e-4

[training.rollouts]
seeds = {{ start = 0, count = 60 }}
deadline_s = 120

[policy]
temperature = 1.0
max_tokens = 12
"""

SFT = """\
[algorithm]
type = "offline"
method = "sft"
variety = "fft"

[job]
model = "Qwen/Qwen3-0.6B"
data = "{data}"

[compute]
gpu_type = "H100"
gpu_count = 1

[data]
validation_path = "{validation}"

[training]
mode = "sft_offline"

[training.validation]
enabled = true
eval_steps = 50

[hyperparameters]
n_epochs = 1
per_device_batch = 64
sequence_length = 128
learning_rate = 2e-3
warmup_ratio = 0.2
train_kind = "fft"
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A stack of its own, whose operator maps the client's model name to a tiny model."""
    home = tmp_path_factory.mktemp("reference-stack")
    make_base(home / "models" / "tiny-walk")
    register(home, home / "models" / "tiny-walk")
    with (
        running(home, "examples.walk.app:app") as started,
        ApiClient(started.api_url, started.api_key) as api,
    ):
        yield Running(started, api)


@pytest.fixture(scope="module")
def proxy(stack: Running) -> Iterator[tuple[RecordingProxy, str]]:
    """What the client talks to: it hears and passes on."""
    listening = RecordingProxy(stack.stack.api_url)
    with serving(listening.app) as url:
        yield listening, url


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> ReferenceClient:
    return provide(tmp_path_factory.mktemp("reference"))


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory, stack: Running) -> Path:
    """The client's working directory: an env file and data, and no `.env`."""
    folder = tmp_path_factory.mktemp("workplace")
    (folder / "keys.env").write_text(
        f"SYNTH_API_KEY={stack.stack.api_key}\nENVIRONMENT_API_KEY={ENVIRONMENT_KEY}\n"
        f"TASK_APP_URL={stack.stack.task_url}\n"
    )
    demonstrations.write(folder / "train.jsonl", 12_000)
    demonstrations.write(folder / "validation.jsonl", 64, seed=1)
    return folder


def make_base(folder: Path) -> None:
    """The walk's base model with room for tool prompts."""
    base_model.make(folder)
    for file, key in (
        ("config.json", "max_position_embeddings"),
        ("tokenizer_config.json", "model_max_length"),
    ):
        path = folder / file
        path.write_text(json.dumps(json.loads(path.read_text()) | {key: POSITIONS}))


def register(home: Path, folder: Path) -> None:
    (home / "models.toml").write_text(f'[models."{NAME}"]\npath = "{folder}"\n')


def train(client: ReferenceClient, backend: str, workplace: Path, config: str, *options: str) -> str:
    """`synth-ai train` with polling to the end; returns the job's id."""
    number = len(list(workplace.glob("config-*.toml")))
    path = workplace / f"config-{number}.toml"
    path.write_text(config)
    done = client.run(
        "train", "--config", str(path), "--env-file", str(workplace / "keys.env"),
        "--backend", backend, "--poll-interval", "2", *options, cwd=workplace,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    [job_id] = set(re.findall(r'"job_id": "(job_[0-9a-f]{16})"', done.stdout))
    return job_id


def succeeded(stack: Running, job_id: str) -> dict[str, Any]:
    """The job, once it has succeeded (the client's exit status is 0 for a failed one, too)."""
    job = stack.api.get_job(job_id)
    assert job["status"] == "succeeded", job["error"]
    assert job["model_id"] == job["fine_tuned_model"] == f"ft:{NAME}:{job_id}"
    return job


def steps_of(stack: Running, job_id: str) -> list[float]:
    return [point["value"] for point in stack.api.metrics(job_id, name="train.loss", limit=10_000)]


def events(stack: Running, job_id: str, of_type: str) -> list[dict[str, Any]]:
    return [event for event in stack.api.events(job_id, limit=1000) if event["type"] == of_type]


def rl_config(stack: Running, start: str, iterations: int = ITERATIONS) -> str:
    return RL.format(task_url=stack.stack.task_url, start=start, iterations=iterations)


def values_of(stack: Running, url: str) -> dict[str, str]:
    """What differs from run to run in the client's requests, and the name that a record has for it."""
    return {url: "{backend}", stack.stack.task_url: "{task_url}", ENVIRONMENT_KEY: "{environment_key}"}


@pytest.fixture(scope="module")
def sft_job(
    client: ReferenceClient, stack: Running, proxy: tuple[RecordingProxy, str], workplace: Path
) -> str:
    listening, url = proxy
    data = {"data": workplace / "train.jsonl", "validation": workplace / "validation.jsonl"}
    job_id = train(client, url, workplace, SFT.format(**data), "--type", "sft")
    check_or_record("train_sft", listening.take(), values_of(stack, url))
    return job_id


@pytest.fixture(scope="module")
def rl_job(
    client: ReferenceClient, stack: Running, proxy: tuple[RecordingProxy, str], workplace: Path, sft_job: str
) -> str:
    """RL from the base name, which from now on stands for the model that can do something."""
    listening, url = proxy
    register(stack.stack.home, checkpoint_folder(stack, sft_job))
    config = rl_config(stack, f'base = "{NAME}"')
    job_id = train(client, url, workplace, config, "--idempotency", "the-first-run")
    check_or_record("train_rl", listening.take(), values_of(stack, url))
    return job_id


def checkpoint_folder(stack: Running, job_id: str) -> Path:
    return Path(stack.api.get_job(job_id)["result"]["checkpoint"])


def wait_for(stack: Running, job_id: str, within_s: float = 300) -> dict[str, Any]:
    """The job when it has ended, however."""
    deadline = time.monotonic() + within_s
    while (job := stack.api.get_job(job_id))["status"] in ("queued", "running"):
        assert time.monotonic() < deadline, job
        time.sleep(0.5)
    return job


def sdk(client: ReferenceClient, url: str, key: str, **scenes: dict[str, Any]) -> dict[str, Any]:
    """What the client's SDK classes made of our answers, scene by scene."""
    program = Path(__file__).parent / "reference_sdk.py"
    done = client.script(program, url, key, json.dumps(scenes), timeout=400)
    told = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert done.returncode == 0, done.stderr
    assert told, done.stdout + done.stderr
    return json.loads(told[-1].removeprefix("RESULT "))


def test_sft_with_a_validation_file_succeeds(stack: Running, sft_job: str):
    succeeded(stack, sft_job)
    losses = steps_of(stack, sft_job)
    assert len(losses) >= 2
    assert losses[-1] < 0.6 * losses[0]
    assert stack.api.metrics(sft_job, name="val.loss"), "the validation file was not evaluated"


def test_rl_from_a_base_name_takes_real_steps_and_ends_with_a_model_id(stack: Running, rl_job: str):
    job = succeeded(stack, rl_job)
    assert job["iteration"] == ITERATIONS
    assert job["result"]["optimizer_steps"] >= 2
    points = stack.api.metrics(rl_job, name="train.nonzero_advantages")
    assert len([point for point in points if point["value"] > 0]) >= 2
    ledger = stack.api.ledger(rl_job)
    assert ledger["summary"]["is_complete"]
    assert ledger["summary"]["trained"] > 0
    types = {event["type"] for event in stack.api.events(rl_job, limit=1000)}
    assert {"rl.job.created", "rl.train.started", "rl.job.completed"} <= types


def test_the_trained_checkpoint_loads_and_answers_in_an_evaluation(
    stack: Running, rl_job: str, tmp_path: Path
):
    config = tmp_path / "eval.toml"
    config.write_text(
        f'type = "eval"\n[model]\nsource = "ft:{NAME}:{rl_job}"\n'
        f"[evaluation_job]\nseeds = [1000, 1001, 1002, 1003]\nsamples = 2\n"
        f'task_url = "{stack.stack.task_url}"\n[policy]\nmax_tokens = 12\n'
    )
    job = wait_for(stack, stack.submit("eval", "--config", str(config)))
    assert job["status"] == "succeeded", job["error"]
    assert job["result"]["n"] == 8


def test_a_second_run_from_the_returned_id_starts_from_those_weights(
    client: ReferenceClient, stack: Running, proxy: tuple[RecordingProxy, str], workplace: Path, rl_job: str
):
    config = rl_config(stack, f'source = "ft:{NAME}:{rl_job}"', iterations=1)
    second = train(client, proxy[1], workplace, config)
    succeeded(stack, second)
    ended = [e["data"]["weights_sha256"] for e in events(stack, rl_job, "rl.train.step")][-1]
    [first_start], [second_start] = (events(stack, job, "rl.train.started") for job in (rl_job, second))
    assert second_start["data"]["weights_sha256"] == ended
    assert first_start["data"]["weights_sha256"] != ended


def test_the_same_idempotency_key_gives_the_same_job(
    client: ReferenceClient, stack: Running, proxy: tuple[RecordingProxy, str], workplace: Path, rl_job: str
):
    n_before = len(stack.api.list_jobs(type="rl"))
    config = rl_config(stack, f'base = "{NAME}"')
    again = train(client, proxy[1], workplace, config, "--idempotency", "the-first-run")
    assert again == rl_job
    assert len(stack.api.list_jobs(type="rl")) == n_before


def test_the_model_option_wins_over_the_config(
    client: ReferenceClient, stack: Running, proxy: tuple[RecordingProxy, str], workplace: Path, sft_job: str
):
    config = rl_config(stack, f'base = "{NAME}"', iterations=1)
    job_id = train(client, proxy[1], workplace, config, "--model", f"ft:{NAME}:{sft_job}")
    assert succeeded(stack, job_id)["model"] == f"ft:{NAME}:{sft_job}"


def test_the_sdk_creates_reads_and_streams(
    client: ReferenceClient, stack: Running, proxy: tuple[RecordingProxy, str], workplace: Path, rl_job: str
):
    listening, url = proxy
    listening.take()
    config = {"training": {"rollouts": {"seeds": [1, 2, 3, 4]}, "iterations_per_epoch": 1}}
    told = sdk(
        client, url, stack.stack.api_key,
        rl={"model": NAME, "task_url": stack.stack.task_url, "config": config},
        sft={"model": NAME, "file": str(workplace / "validation.jsonl")},
        other={"job_id": rl_job, "environment_key": ENVIRONMENT_KEY},
    )  # fmt: skip
    check_or_record("sdk", listening.take(), values_of(stack, url))
    for job_id in (told["rl"]["job_id"], told["sft"]["job_id"], told["sft"]["second"]):
        with suppress(Conflict):  # it may have ended by now
            stack.api.cancel_job(job_id)
    assert told["rl"]["job"]["status"] in ("queued", "running"), told["rl"]
    assert told["rl"]["started"], "start must answer an object"
    assert told["rl"]["events"][0]["seq"] == 1
    assert told["sft"]["job"]["status"] in ("queued", "running", "succeeded"), told["sft"]
    assert f"ft:{NAME}:{rl_job}" in [model["id"] for model in told["sft"]["models"]]
    assert told["other"]["stored"]["stored"], told["other"]
    streamed = [event["seq"] for event in told["other"]["streamed"]]
    assert streamed[0] == 1
    assert streamed == sorted(set(streamed))


def test_the_sdks_pollers_follow_a_job_that_is_queued_for_a_minute(
    client: ReferenceClient, stack: Running, proxy: tuple[RecordingProxy, str], rl_job: str
):
    payload = {
        "job_type": "rl",
        "data": {
            "model": f"ft:{NAME}:{rl_job}",
            "endpoint_base_url": stack.stack.task_url,
            "config": {"training": {"rollouts": {"seeds": [1, 2, 3, 4]}, "iterations_per_epoch": 1}},
        },
    }
    long = json.loads(json.dumps(payload))
    long["data"]["config"]["training"]["iterations_per_epoch"] = 500
    ahead, behind = (stack.api.create_rl_job(body)["job_id"] for body in (long, payload))
    timer = threading.Timer(60, stack.api.cancel_job, [ahead])
    timer.start()
    try:
        told = sdk(client, proxy[1], stack.stack.api_key, poll={"job_id": behind})["poll"]
    finally:
        timer.join()
    job = wait_for(stack, behind)
    for poller in ("rl_client", "job_handle", "job_handle_lenient", "learning_client"):
        assert told[poller].get("status") == job["status"], told
    assert told["seqs_increase"]
    assert "rl.job.created" in told["event_types"]


def test_the_sdk_asks_the_trained_model(
    client: ReferenceClient, stack: Running, proxy: tuple[RecordingProxy, str], rl_job: str
):
    listening, url = proxy
    listening.take()
    messages = [{"role": "user", "content": "x+3 y-2"}]
    asked = {"model": f"ft:{NAME}:{rl_job}", "messages": messages, "timeout_s": 300}
    told = sdk(client, url, stack.stack.api_key, ask=asked)["ask"]
    check_or_record("ask", listening.take(), values_of(stack, url))
    assert told["choices"][0]["message"]["content"], told
