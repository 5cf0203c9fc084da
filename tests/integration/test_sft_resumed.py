"""An SFT job that breaks midway and is resumed, with the real trainer on the CPU."""

from __future__ import annotations

import hashlib
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file
from tests.fakes.tiny_model import make_tiny_model
from tests.fakes.trainer import JOB, TrainerWorld

from headrace.artifacts.files import ArtifactStore
from headrace.config.load import load
from headrace.contracts.job import JobType
from headrace.store import jobs, progress, runs
from headrace.store.jobs import get_job
from headrace.store.session import Store
from headrace.store.tables import Job, JobRun, StoredFile
from headrace_trainer import claim as claim_module
from headrace_trainer import sft_loop

pytestmark = pytest.mark.integration

TOTAL, BREAKS_AFTER = 5, 3
ROWS = [
    json.dumps(
        {"messages": [{"role": "user", "content": f"{n}+1"}, {"role": "assistant", "content": str(n + 1)}]}
    )
    for n in range(2 * TOTAL)
]


def world_in(folder: Path, valkey_url: str, model: Path) -> TrainerWorld:
    """A queued SFT job of five steps with a checkpoint after every second one."""
    from sqlmodel import SQLModel

    folder.mkdir()
    store = Store(f"sqlite:///{folder / 'headrace.db'}")
    SQLModel.metadata.create_all(store.writer)
    content = "\n".join(ROWS).encode()
    ArtifactStore(folder / "artifacts").write("local/files/f.jsonl", content)
    raw = {
        "job": {"model": str(model), "data": "train.jsonl"},
        "hyperparameters": {"n_epochs": 1, "batch_size": 2, "checkpoint_every": 2, "learning_rate": 1e-3},
    }
    config = load(raw, JobType.SFT, strict=True).config.model_dump(mode="json")
    world = TrainerWorld(
        folder, store, valkey_url, "sft", config=config, data={"training_file_id": "f"}, iterations=TOTAL
    )
    with store.write() as session:
        session.add(
            StoredFile(
                file_id="f", org_id="local", filename="train.jsonl", purpose="fine-tune", status="ready",
                n_bytes=len(content), n_rows=len(ROWS), sha256=hashlib.sha256(content).hexdigest(),
                path="local/files/f.jsonl",
            )
        )  # fmt: skip
        runs.begin(session, session.get_one(Job, JOB))
    return world


def run(world: TrainerWorld) -> Job:
    assert claim_module.run_next(world.context, ("sft",), {"sft": sft_loop.run_sft}, threading.Event())
    return world.row()


def weights(job: Job) -> dict[str, Any]:
    return load_file(Path(job.result["checkpoint"]) / "model.safetensors")


def runs_of(world: TrainerWorld) -> list[JobRun]:
    with world.store.read() as session:
        return runs.of_job(session, JOB)


def test_a_resumed_job_ends_with_the_weights_of_one_that_never_broke(
    tmp_path: Path, valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_tiny_model(tmp_path / "tiny")
    whole = run(world_in(tmp_path / "whole", valkey_url, model))
    assert (whole.status, whole.iteration) == ("succeeded", TOTAL), whole.error

    world, one_step = world_in(tmp_path / "broken", valkey_url, model), sft_loop._one_step

    def breaks(sft_run: sft_loop.SFTRun) -> None:
        if sft_run.step == BREAKS_AFTER:
            raise OSError("the disk is full")
        one_step(sft_run)

    monkeypatch.setattr(sft_loop, "_one_step", breaks)
    failed = run(world)
    assert (failed.status, failed.error) == ("failed", "internal error: OSError: the disk is full")
    monkeypatch.setattr(sft_loop, "_one_step", one_step)
    with world.store.write() as session:
        jobs.requeue(session, JOB)
    resumed = run(world)
    assert (resumed.status, resumed.iteration, resumed.timeline) == ("succeeded", TOTAL, 2), resumed.error
    assert [(one.run_number, one.status) for one in runs_of(world)] == [(1, "failed"), (2, "succeeded")]
    with world.store.read() as session:
        assert get_job(session, "local", JOB).error is None
        started = [
            e.message for e in progress.events_after(session, JOB, 0, 100) if e.type.endswith("started")
        ]
        steps = [m.step for m in progress.metric_points(session, JOB, -1, "train.loss", 100)]
    assert [message.rpartition(", ")[2] for message in started] == ["from step 0", "from step 2"]
    assert steps == [1, 2, 3, 4, 5]
    expected, found = weights(whole), weights(resumed)
    assert expected.keys() == found.keys()
    assert all((expected[name] == found[name]).all() for name in expected)
    world.store.close()
