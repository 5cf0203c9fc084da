"""`/keys` (bearer keys), `/crypto/public-key` and `/env-keys` (task apps' keys, uploaded sealed)."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Self

from fastapi import APIRouter
from pydantic import BaseModel, Field

from headrace.store import keys as stored
from headrace.store.tables import ApiKey, EnvironmentKey
from headrace_api.deps import BackendsDep, CallerDep
from headrace_api.keys import service

router = APIRouter(tags=["keys"])

Name = Annotated[str, Field(min_length=1, max_length=100)]


class NewKey(BaseModel):
    name: Name


class KeyView(BaseModel):
    key_id: str
    name: str
    prefix: str
    created_at: datetime
    revoked_at: datetime | None

    @classmethod
    def of(cls, row: ApiKey) -> Self:
        return cls(**row.model_dump(exclude={"org_id", "sha256"}))


class CreatedKey(KeyView):
    key: str
    """Shown this once."""


class KeyList(BaseModel):
    keys: list[KeyView]


class PublicKeyView(BaseModel):
    public_key: str
    alg: str


class SealedKey(BaseModel):
    name: Name = "ENVIRONMENT_API_KEY"
    ciphertext_b64: str


class EnvironmentKeyView(BaseModel):
    id: str
    name: str
    prefix: str
    updated_at: datetime

    @classmethod
    def of(cls, row: EnvironmentKey) -> Self:
        return cls(id=row.env_key_id, name=row.name, prefix=row.prefix, updated_at=row.updated_at)


class EnvironmentKeyList(BaseModel):
    keys: list[EnvironmentKeyView]


class Present(BaseModel):
    present: bool


class Deleted(BaseModel):
    id: str
    deleted: bool = True


@router.post("/keys", status_code=201)
def create_key(body: NewKey, backends: BackendsDep, caller: CallerDep) -> CreatedKey:
    with backends.store.write() as session:
        row, key = stored.create_key(session, caller.org_id, body.name)
    return CreatedKey(**KeyView.of(row).model_dump(), key=key)


@router.get("/keys")
def list_keys(backends: BackendsDep, caller: CallerDep) -> KeyList:
    with backends.store.read() as session:
        return KeyList(keys=[KeyView.of(row) for row in stored.list_keys(session, caller.org_id)])


@router.delete("/keys/{key_id}")
def revoke_key(key_id: str, backends: BackendsDep, caller: CallerDep) -> KeyView:
    with backends.store.write() as session:
        return KeyView.of(stored.revoke_key(session, caller.org_id, key_id))


@router.get("/crypto/public-key")
def public_key(backends: BackendsDep) -> PublicKeyView:
    return PublicKeyView(public_key=service.public_key(backends.settings.secret_key), alg=service.ALGORITHM)


@router.post("/env-keys", status_code=201)
def upload_environment_key(body: SealedKey, backends: BackendsDep, caller: CallerDep) -> EnvironmentKeyView:
    row = service.store_sealed(backends, caller.org_id, body.name, body.ciphertext_b64)
    return EnvironmentKeyView.of(row)


@router.get("/env-keys")
def list_environment_keys(backends: BackendsDep, caller: CallerDep) -> EnvironmentKeyList:
    with backends.store.read() as session:
        rows = stored.environment_keys(session, caller.org_id)
    return EnvironmentKeyList(keys=[EnvironmentKeyView.of(row) for row in rows])


@router.get("/env-keys/verify")
def verify_environment_keys(backends: BackendsDep, caller: CallerDep) -> Present:
    with backends.store.read() as session:
        return Present(present=bool(stored.environment_keys(session, caller.org_id)))


@router.delete("/env-keys/{env_key_id}")
def delete_environment_key(env_key_id: str, backends: BackendsDep, caller: CallerDep) -> Deleted:
    with backends.store.write() as session:
        stored.delete_environment_key(session, caller.org_id, env_key_id)
    return Deleted(id=env_key_id)
