"""Asking a task app that drips, floods, repeats secrets or comes back late."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.responses import JSONResponse, StreamingResponse
from tests.conftest import free_port
from tests.fakes.server import serving

from headrace.contracts.task_app import TaskFacts
from headrace.errors import ConfigError, JobFailed
from headrace.queue.secrets import seal
from headrace.settings import Settings
from headrace.store.tables import EnvironmentKey
from headrace_trainer import task_facts

SECRET = "ab" * 32
KEY = "env-key-0123456789"


@pytest.fixture
def context(store, tmp_path: Path) -> Any:
    with store.write() as session:
        session.add(
            EnvironmentKey(
                env_key_id="e", org_id="local", name="n", prefix="env", sha256="s", ciphertext=seal(SECRET, [KEY])
            )
        )  # fmt: skip
    return SimpleNamespace(store=store, settings=Settings(home=tmp_path, secret_key=SECRET))


def app_with(handler: Any) -> FastAPI:
    app = FastAPI()
    app.get("/task_info")(handler)
    return app


def test_an_answer_that_drips_for_ever_ends_at_the_deadline(context, monkeypatch):
    monkeypatch.setattr(task_facts, "ASK_S", 0.5)

    async def drip():
        for _ in range(200):
            yield b" "
            await asyncio.sleep(0.05)

    async def info():
        return StreamingResponse(drip())

    began = time.monotonic()
    with serving(app_with(info)) as url, pytest.raises(JobFailed, match="did not finish its answer"):
        task_facts.ask(context, "local", url)
    assert time.monotonic() - began < 5


def test_an_answer_without_end_is_not_read_into_memory(context, monkeypatch):
    monkeypatch.setattr(task_facts, "MAX_BYTES", 1 << 20)

    async def flood():
        for _ in range(64):
            yield b" " * 65536
            await asyncio.sleep(0.005)

    async def info():
        return StreamingResponse(flood())

    with serving(app_with(info)) as url, pytest.raises(JobFailed, match="larger than 1 MiB"):
        task_facts.ask(context, "local", url)


def test_a_key_that_the_app_repeats_is_not_in_the_reason(context):
    async def info():
        return JSONResponse({"detail": f"bad key {KEY}"}, status_code=500)

    with serving(app_with(info)) as url, pytest.raises(JobFailed, match=r"500.*bad key \*\*\*"):
        task_facts.ask(context, "local", url)


def test_an_app_that_is_away_is_asked_again_only_where_there_is_patience(context, monkeypatch):
    monkeypatch.setattr(task_facts, "ASK_AGAIN_S", 0.05)
    ticks: list[int] = []
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(JobFailed, match="is it running"):
        task_facts.ask(context, "local", url, tick=lambda: ticks.append(1))
    assert len(ticks) == 1
    with pytest.raises(JobFailed, match="is it running"):
        task_facts.ask(context, "local", url, patience_s=0.5, tick=lambda: ticks.append(1))
    assert len(ticks) > 3


def test_a_seed_range_that_fits_no_memory_is_refused():
    with pytest.raises(ConfigError, match="seed_range"):
        task_facts.training_seeds(None, TaskFacts(seed_range=(0, 10**15)), None)
