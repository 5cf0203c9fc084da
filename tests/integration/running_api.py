"""The real API on a port of its own, over real SQLite and Valkey, with the keys of three people.

Alice owns the organisation `local`, Bob is a member with a key of his own, Charlie is an outsider.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis
import uvicorn
from tests.fakes.tiny_model import make_tiny_model

from headrace.client import ApiClient
from headrace.store import keys
from headrace.store.session import Store
from headrace_api.app import create_app
from headrace_api.settings import ApiSettings

ALICE, BOB, CHARLIE = "hr_alice", "hr_bob", "hr_charlie"


@dataclass
class RunningApi:
    url: str
    settings: ApiSettings
    store: Store
    redis: redis.Redis
    alice: ApiClient
    bob: ApiClient
    charlie: ApiClient
    model: str
    """A model folder that resolves."""

    def rl_payload(self, **data: object) -> dict:
        config = {"services": {"task_url": "http://127.0.0.1:9"}, "model": {"base": self.model}}
        return {"job_type": "rl", "data": {"config": config, **data}, "strict": True}


@contextmanager
def serving(settings: ApiSettings) -> Iterator[str]:
    """Serve the API in a thread; yields its address."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        config = uvicorn.Config(create_app(settings), log_level="warning", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive(), "the API did not start"
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join(timeout=15)


@pytest.fixture
def api(tmp_path: Path, valkey_url: str) -> Iterator[RunningApi]:
    settings = ApiSettings.model_validate(
        {
            "HEADRACE_HOME": tmp_path / "home",
            "REDIS_URL": valkey_url,
            "HEADRACE_SECRET_KEY": "5e" * 32,
            "HEADRACE_BOOTSTRAP_KEY": ALICE,
        }
    )
    with serving(settings) as url:
        store, client = Store(settings.sql_url), redis.Redis.from_url(valkey_url)
        with store.write() as session:
            keys.ensure_key(session, keys.LOCAL_ORG, BOB, "bob")
            keys.ensure_org(session, "charlie", "Charlie")
            keys.ensure_key(session, "charlie", CHARLIE, "charlie")
        people = [ApiClient(url, key) for key in (ALICE, BOB, CHARLIE)]
        yield RunningApi(url, settings, store, client, *people, model=str(make_tiny_model(tmp_path / "tiny")))
        for person in people:
            person.close()
        client.close()
        store.close()
