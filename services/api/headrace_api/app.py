"""The application: its routes (other names of which are in `paths`), one error handler, migrations at start."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import Depends, FastAPI

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
from headrace_api.inference import routes as inference
from headrace_api.inference.desk import opened_desk
from headrace_api.jobs import routes as jobs
from headrace_api.keys import routes as key_routes
from headrace_api.metrics import routes as metrics
from headrace_api.models import routes as models
from headrace_api.paths import CanonicalPaths
from headrace_api.pools import routes as pools
from headrace_api.settings import ApiSettings
from headrace_api.task_apps import routes as task_apps
from headrace_api.traces import routes as traces


def create_app(settings: ApiSettings) -> FastAPI:
    """The API over the database, Redis and artifacts that `settings` name."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        backends = open_backends(settings)
        app.state.backends = backends
        async with opened_desk(backends) as app.state.desk:
            yield
        backends.store.close()
        backends.redis.close()

    app = FastAPI(
        title="Headrace",
        version=headrace.__version__,
        servers=[{"url": "/api/v1"}],
        lifespan=lifespan,
    )
    errors.install(app)
    app.add_middleware(CanonicalPaths)
    app.include_router(health.router)
    with_key = [Depends(get_caller)]
    for feature in (jobs, files, key_routes, models, pools, inference, task_apps, traces):
        app.include_router(feature.router, dependencies=with_key)
    for reads in (jobs.reads, events.router, metrics.router, traces.reads):
        app.include_router(reads, prefix="/jobs", dependencies=with_key)
    return app


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
