"""What handlers ask for: the backends of this process and the caller of this request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import redis
from fastapi import Depends, Header, Request

from headrace.artifacts.files import ArtifactStore
from headrace.errors import Unauthorized
from headrace.store import keys
from headrace.store.session import Store
from headrace_api.settings import ApiSettings


@dataclass(frozen=True)
class Backends:
    """Everything outside the process that a service may use."""

    settings: ApiSettings
    store: Store
    redis: redis.Redis
    artifacts: ArtifactStore


@dataclass(frozen=True)
class Caller:
    """Who sent the request; each query is scoped by `org_id`."""

    org_id: str
    key_id: str


def get_backends(request: Request) -> Backends:
    return request.app.state.backends


BackendsDep = Annotated[Backends, Depends(get_backends)]


def get_caller(backends: BackendsDep, authorization: Annotated[str | None, Header()] = None) -> Caller:
    """The owner of the bearer key; raises Unauthorized without a valid one."""
    scheme, _, key = (authorization or "").partition(" ")
    key = key.strip()
    if scheme.lower() != "bearer" or not key:
        raise Unauthorized("this request has no API key; send the header `Authorization: Bearer <key>`")
    with backends.store.read() as session:
        row = keys.authenticate(session, key)
    return Caller(row.org_id, row.key_id)


CallerDep = Annotated[Caller, Depends(get_caller)]
