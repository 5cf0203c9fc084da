"""The Python examples of docs/client.md and docs/datasets.md, run as they stand."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.integration.calling import as_alice, claim, end, measure, played
from tests.integration.inference_world import World, running_world
from tests.integration.running_api import ALICE, RunningApi, api  # noqa: F401

from headrace import Client
from headrace.contracts.job import JobStatus
from headrace.store.tables import Checkpoint

pytestmark = pytest.mark.integration

DOCS = Path(__file__).parents[2] / "docs"
CONFIG = '[services]\ntask_url = "http://127.0.0.1:9"\n[model]\nbase = "{}"\n'


def example(page: str) -> str:
    [body] = re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    return body


@pytest.fixture
def world(tmp_path: Path, valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A stack that answers chats, and no trainer."""
    with running_world(tmp_path / "home", valkey_url) as world, world.owner():
        as_alice(SimpleNamespace(url=str(world.http.base_url)), monkeypatch, tmp_path)
        yield world


def test_the_ten_lines_of_the_client_page_run(world: World, capsys: pytest.CaptureFixture):
    Path("rl.toml").write_text(CONFIG.format("tiny"))
    stop = threading.Event()
    trainer = threading.Thread(target=_end_the_first_job, args=(world, stop))
    trainer.start()
    try:
        names: dict = {}
        exec(compile(example("client.md"), "client.md", "exec"), names)
    finally:
        stop.set()
        trainer.join(timeout=20)
    assert names["rows"] == [{"step": 1, "reward.mean": 0.5}]
    assert names["again"].status is JobStatus.QUEUED
    model_id, reply = capsys.readouterr().out.splitlines()[:2]
    assert model_id == f"ft:tiny:{names['job'].id}"
    assert reply
    lines = [line for line in example("client.md").splitlines() if line]
    assert len(lines) == 10


def _end_the_first_job(world: World, stop: threading.Event) -> None:
    """In the trainer's place: the submitted job succeeds with the trained model's id."""
    with Client(str(world.http.base_url), ALICE) as client:
        while not stop.is_set():
            queued = client.jobs(status="queued")
            if queued:
                _end(world, queued[0].id)
                return
            time.sleep(0.05)


def _end(world: World, job_id: str) -> None:
    measure(world, job_id, 1, reward_mean=0.5, time_rollout_s=2.0)
    claim(world, job_id)
    with world.store.write() as session:
        trained = session.get_one(Checkpoint, "ckpt_1").model_dump()
        session.add(Checkpoint(**trained | {"checkpoint_id": "ckpt_2", "job_id": job_id}))
    end(world, job_id, JobStatus.SUCCEEDED, model_id=f"ft:tiny:{job_id}")


def test_the_filter_of_the_datasets_page_runs(api: RunningApi, monkeypatch, tmp_path):  # noqa: F811
    as_alice(api, monkeypatch, tmp_path)
    job_id = api.alice.create_rl_job(api.rl_payload())["job_id"]
    played(api, job_id, 0.0, 1.0)
    names: dict = {}
    exec(compile(example("datasets.md"), "datasets.md", "exec"), names)
    [line] = Path("good.jsonl").read_text().splitlines()
    assert [message["content"] for message in json.loads(line)["messages"]] == ["question 1", "answer 1"]
    assert api.alice.get_file(names["file_id"])["n_rows"] == 1
