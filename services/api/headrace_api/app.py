"""The application: every route under `/`, `/api` and `/api/v1`, one error handler, migrations at start."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import APIRouter, Depends, FastAPI

import headrace
from headrace.artifacts.files import ArtifactStore
from headrace.queue.connect import connect
from headrace.store import keys
from headrace.store.migrate import upgrade
from headrace.store.session import Store
from headrace_api import errors
from headrace_api.deps import Backends, get_caller
from headrace_api.events import routes as events
from headrace_api.files import routes as files
from headrace_api.health import routes as health
from headrace_api.jobs import routes as jobs
from headrace_api.keys import routes as key_routes
from headrace_api.metrics import routes as metrics
from headrace_api.models import routes as models
from headrace_api.settings import ApiSettings
from headrace_api.task_apps import routes as task_apps
from headrace_api.traces import routes as traces

PREFIXES = ("/api/v1", "/api", "")
"""The first is the documented one; clients of the contract use all three."""
FAMILIES = ("/jobs", "/rl/jobs", "/learning/jobs", "/sft/jobs", "/eval/jobs")
"""A job of any type can be read under each of them; the first is the documented one."""


def create_app(settings: ApiSettings) -> FastAPI:
    """The API over the database, Redis and artifacts that `settings` name."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        backends = open_backends(settings)
        app.state.backends = backends
        yield
        backends.store.close()
        backends.redis.close()

    app = FastAPI(title="Headrace", version=headrace.__version__, lifespan=lifespan)
    errors.install(app)
    for prefix in PREFIXES:
        documented = prefix == PREFIXES[0]
        app.include_router(health.router, prefix=prefix, include_in_schema=documented)
        app.include_router(
            _routes(), prefix=prefix, dependencies=[Depends(get_caller)], include_in_schema=documented
        )
    return app


def _routes() -> APIRouter:
    """Every route that needs a key."""
    router = APIRouter()
    for feature in (jobs, files, key_routes, models, task_apps, traces):
        router.include_router(feature.router)
    for family in FAMILIES:
        documented = family == FAMILIES[0]
        for reads in (jobs.reads, events.router, metrics.router, traces.reads):
            router.include_router(reads, prefix=family, include_in_schema=documented)
    return router


def open_backends(settings: ApiSettings) -> Backends:
    """Migrate the database, make the first organisation and its key, and connect."""
    settings.home.mkdir(parents=True, exist_ok=True)
    upgrade(settings.sql_url)
    store = Store(settings.sql_url)
    with store.write() as session:
        keys.ensure_org(session, keys.LOCAL_ORG, "Local")
        if settings.bootstrap_key:
            keys.ensure_key(session, keys.LOCAL_ORG, settings.bootstrap_key, "bootstrap")
    # SQL is the truth, so a request waits for Redis only a moment.
    redis = connect(settings.redis_url, retries=1, timeout_s=5)
    return Backends(settings, store, redis, ArtifactStore(settings.artifacts))
