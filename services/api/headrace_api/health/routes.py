"""`/health`: the process lives. `/ready`: its dependencies answer."""

from __future__ import annotations

import redis
from fastapi import APIRouter
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

import headrace
from headrace.errors import Unavailable
from headrace_api.deps import BackendsDep

router = APIRouter(tags=["health"])


@router.get("/health")
def health() -> dict[str, str]:
    return {"status": "ok", "version": headrace.__version__}


@router.get("/ready")
def ready(backends: BackendsDep) -> dict[str, str]:
    try:
        with backends.store.read() as session:
            session.execute(text("SELECT 1"))
    except SQLAlchemyError as error:
        raise Unavailable(f"the database does not answer: {error.__cause__ or error}") from error
    try:
        backends.redis.ping()
    except redis.RedisError as error:
        raise Unavailable(f"Redis at REDIS_URL does not answer: {error}") from error
    return {"status": "ready"}
