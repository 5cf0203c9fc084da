"""Organisations, their bearer keys (only the sha256 is kept) and their task apps' keys (only ciphertext)."""

from __future__ import annotations

import hashlib
import secrets

from sqlalchemy import select
from sqlmodel import Session, col

from headrace.clock import now
from headrace.errors import Conflict, NotFound, Unauthorized
from headrace.ids import new_id
from headrace.store.insert import insert_new
from headrace.store.tables import ApiKey, EnvironmentKey, Org

LOCAL_ORG = "local"
"""The organisation that a fresh installation starts with."""
N_PREFIX = 7
"""Characters of a key that may be shown again."""


def sha256(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def new_key() -> str:
    """A fresh bearer key: `hr_` and 192 random bits."""
    return f"hr_{secrets.token_hex(24)}"


def ensure_org(session: Session, org_id: str, name: str) -> None:
    insert_new(session, [Org(org_id=org_id, name=name)])


def ensure_key(session: Session, org_id: str, key: str, name: str) -> None:
    """Make `key` valid for an organisation; repeating it changes nothing, a revoked key stays revoked."""
    insert_new(session, [_row(org_id, key, name)])


def create_key(session: Session, org_id: str, name: str) -> tuple[ApiKey, str]:
    """A new key and its text, which is not kept."""
    key = new_key()
    row = _row(org_id, key, name)
    session.add(row)
    return row, key


def _row(org_id: str, key: str, name: str) -> ApiKey:
    return ApiKey(key_id=new_id("key"), org_id=org_id, name=name, prefix=key[:N_PREFIX], sha256=sha256(key))


def authenticate(session: Session, key: str) -> ApiKey:
    """The key's row; raises Unauthorized for an unknown or revoked one."""
    statement = select(ApiKey).where(col(ApiKey.sha256) == sha256(key), col(ApiKey.revoked_at).is_(None))
    row = session.execute(statement).scalar_one_or_none()
    if row is None:
        raise Unauthorized(f"the API key {key[:N_PREFIX]}... is not known or was revoked; use a valid key")
    return row


def list_keys(session: Session, org_id: str) -> list[ApiKey]:
    statement = select(ApiKey).where(col(ApiKey.org_id) == org_id).order_by(col(ApiKey.created_at))
    return list(session.execute(statement).scalars())


def revoke_key(session: Session, org_id: str, key_id: str) -> ApiKey:
    """Revoke a key; an organisation keeps at least one, or nobody could make another."""
    row = session.get(ApiKey, key_id)
    if row is None or row.org_id != org_id:
        raise NotFound(f"no API key {key_id!r}")
    if row.revoked_at is None:
        if not [key for key in list_keys(session, org_id) if key.revoked_at is None and key is not row]:
            raise Conflict(
                f"{key_id} is the last key of this organisation; create another before revoking it"
            )
        row.revoked_at = now()
    return row


def store_environment_key(
    session: Session, org_id: str, name: str, key: str, ciphertext: bytes
) -> EnvironmentKey:
    """Keep a task app's key; the same key again only takes the new name."""
    row = EnvironmentKey(
        env_key_id=new_id("envkey"),
        org_id=org_id,
        name=name,
        prefix=key[: min(N_PREFIX, len(key) // 4)],
        sha256=sha256(key),
        ciphertext=ciphertext,
    )
    insert_new(session, [row])
    statement = select(EnvironmentKey).where(
        col(EnvironmentKey.org_id) == org_id, col(EnvironmentKey.sha256) == row.sha256
    )
    stored = session.execute(statement).scalar_one()
    # A changed secret key makes the old ciphertext unreadable: uploading the key again repairs it.
    stored.name, stored.ciphertext, stored.updated_at = name, ciphertext, now()
    return stored


def environment_keys(session: Session, org_id: str) -> list[EnvironmentKey]:
    """Newest first: the first is sent as the primary key."""
    statement = (
        select(EnvironmentKey)
        .where(col(EnvironmentKey.org_id) == org_id)
        .order_by(col(EnvironmentKey.updated_at).desc(), col(EnvironmentKey.env_key_id))
    )
    return list(session.execute(statement).scalars())


def delete_environment_key(session: Session, org_id: str, env_key_id: str) -> None:
    row = session.get(EnvironmentKey, env_key_id)
    if row is None or row.org_id != org_id:
        raise NotFound(f"no environment key {env_key_id!r}")
    session.delete(row)
