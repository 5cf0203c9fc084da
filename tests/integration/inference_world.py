"""API, gateway (over the fake engine) and the engine's owner, as one stack without a trainer."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import update
from sqlmodel import col
from tests.fakes.policy_stack import TRAINER, WORKER, PolicyStack, until
from tests.fakes.tiny_model import make_tiny_model
from tests.integration.running_api import ALICE, CHARLIE, serving

from headrace.artifacts.files import ArtifactStore
from headrace.config.pools import find_pool, find_topology
from headrace.contracts.policy import ServeSpec
from headrace.ids import new_id
from headrace.queue import names
from headrace.queue.connect import connect
from headrace.queue.inference import Offer
from headrace.queue.slots import SlotClaim
from headrace.settings import Settings
from headrace.store import keys
from headrace.store.session import Store
from headrace.store.tables import Checkpoint, Job
from headrace_api.settings import ApiSettings
from headrace_trainer.context import Context
from headrace_trainer.inference import owning

POOL = "local-cpu"
TRAINED = "ft:tiny:job_trained"
HI = [{"role": "user", "content": "hi"}]
CHAT = "/api/inference/v1/chat/completions"


class World:
    """Models `tiny` and `other` of the operator's, and `TRAINED`, which is Alice's."""

    def __init__(self, home: Path, redis_url: str) -> None:
        self.home, self.redis_url = home, redis_url
        self.gateway = PolicyStack(home, redis_url, "tests.fakes.gateway", POOL)
        self.gateway.claim.release()
        self.redis = self.gateway.redis
        self.environment = {
            "HEADRACE_HOME": str(home),
            "REDIS_URL": redis_url,
            "HEADRACE_POOL": POOL,
            "HEADRACE_POLICY_URL": self.gateway.url,
            "HEADRACE_WORKER_TOKEN": WORKER,
            "HEADRACE_TRAINER_TOKEN": TRAINER,
            "HEADRACE_BOOTSTRAP_KEY": ALICE,
            "HEADRACE_INFERENCE_WAIT": "20",
        }
        make_tiny_model(home / "models" / "tiny")
        make_tiny_model(home / "models" / "other", seed=1)
        (home / "models.toml").write_text(
            '[models.tiny]\npath = "models/tiny"\ntool_parser = "hermes"\n[models.other]\npath = "models/other"\n'
            '[models.misnamed]\npath = "models/other"\ntool_parser = "hermess"\n'
        )
        self.http = httpx.Client(timeout=60)
        self.store: Store

    def start(self, url: str) -> None:
        """The database's rows, once the API at `url` has made the tables."""
        self.http.base_url = url
        self.http.headers["Authorization"] = f"Bearer {ALICE}"
        self.store = Store(self.settings().sql_url)
        with self.store.write() as session:
            keys.ensure_org(session, "charlie", "Charlie")
            keys.ensure_key(session, "charlie", CHARLIE, "charlie")
        path = f"{keys.LOCAL_ORG}/job_trained/checkpoints/t1.i1"
        make_tiny_model(self.home / "artifacts" / path, seed=2)
        self.add_job("rl", "succeeded", job_id="job_trained", model="tiny", model_id=TRAINED)
        with self.store.write() as session:
            session.add(
                Checkpoint(
                    checkpoint_id="ckpt_1", org_id=keys.LOCAL_ORG, job_id="job_trained", timeline=1,
                    version=1, iteration=1, step=1, path=path, is_kept=True,
                )
            )  # fmt: skip

    def settings(self, **changes: Any) -> Settings:
        return Settings.model_validate(self.environment | changes)

    @contextmanager
    def owner(self, **changes: Any) -> Iterator[None]:
        """The evaluator's thread that owns the engine for inference."""
        settings = self.settings(**changes)
        _, topology = find_topology(find_pool(POOL)[1], None)

        def context() -> Context:
            artifacts = ArtifactStore(settings.artifacts)
            return Context(settings, Store(settings.sql_url), connect(self.redis_url), artifacts, topology)

        with owning(context):
            yield

    def add_job(self, job_type: str, status: str, org_id: str = keys.LOCAL_ORG, **fields: Any) -> str:
        job_id = fields.pop("job_id", None) or new_id("job")
        row = {"pool": POOL, "model": "tiny", "body_sha256": ""} | fields
        with self.store.write() as session:
            session.add(Job(job_id=job_id, org_id=org_id, type=job_type, status=status, **row))
        return job_id

    def end_job(self, job_id: str) -> None:
        with self.store.write() as session:
            session.get_one(Job, job_id).status = "cancelled"

    def end_jobs(self) -> None:
        """What a failed test has left waiting would keep the engine from all later ones."""
        with self.store.write() as session:
            session.execute(
                update(Job).where(col(Job.status).in_(("queued", "running"))).values(status="cancelled")
            )

    def slot(self, job_id: str) -> SlotClaim:
        return SlotClaim(self.redis, POOL, 0, job_id)

    def holder(self) -> str | None:
        return self.slot("nobody").holder()

    def desired(self) -> ServeSpec:
        raw: Any = self.redis.get(names.slot_desired(POOL, 0))
        return ServeSpec.model_validate_json(raw)

    def ask(self, model: str = TRAINED, path: str = CHAT, key: str = ALICE, **body: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {key}"}
        return self.http.post(path, json={"model": model, "messages": HI, **body}, headers=headers)

    def asking(self, model: str = TRAINED, *, base_url: str = "") -> Asking:
        """The same from a thread and a connection of its own."""
        return Asking(self, model, base_url or str(self.http.base_url).rstrip("/"))

    def set_mode(self, mode: str) -> None:
        httpx.post(f"{self.gateway.engine_url}/fake", json={"mode": mode})

    def seen(self, what: str = "requests") -> dict[str, Any]:
        """The last request of a kind that the engine got."""
        return httpx.get(f"{self.gateway.engine_url}/fake").json()[what][-1]

    def gives_way_to(self) -> str | None:
        """The job for which the owner of the engine lets no call begin any more."""
        raw: Any = self.redis.get(names.inference_offer(POOL, 0))
        return Offer.model_validate_json(raw).gives_way_to if raw else None

    def n_in_flight(self) -> int:
        return int(self.redis.zcard(names.inference_calls(POOL, 0)))  # type: ignore[arg-type]

    def close(self) -> None:
        self.gateway.close()
        self.http.close()
        self.store.close()


class Asking:
    def __init__(self, world: World, model: str, base_url: str) -> None:
        self.reply: httpx.Response | None = None
        self.answered_at = 0.0
        self._thread = threading.Thread(target=self._ask, args=(world, model, base_url), daemon=True)
        self._thread.start()

    def _ask(self, world: World, model: str, base_url: str) -> None:
        with suppress(httpx.TransportError):
            body = {"model": model, "messages": HI}
            self.reply = httpx.post(base_url + CHAT, json=body, headers=world.http.headers, timeout=60)
        self.answered_at = time.monotonic()

    def result(self) -> httpx.Response:
        self._thread.join(timeout=60)
        assert self.reply is not None, "no answer came"
        return self.reply

    def failed(self) -> bool:
        """Whether the connection broke before an answer came."""
        self._thread.join(timeout=60)
        return self.reply is None


@contextmanager
def running_world(home: Path, redis_url: str) -> Iterator[World]:
    """The stack on an emptied Valkey: sessions and leases of other modules' services are no part of it."""
    with closing(connect(redis_url)) as client:
        client.flushall()
    world = World(home, redis_url)
    world.gateway.start()
    with serving(ApiSettings.model_validate(world.environment)) as url:
        world.start(url)
        yield world
    world.close()


def until_free(world: World, timeout_s: float = 20) -> None:
    until(lambda: world.holder() is None, timeout_s, "the engine is still held")
