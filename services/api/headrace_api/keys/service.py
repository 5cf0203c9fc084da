"""Opening sealed uploads of environment keys, and keeping them as ciphertext.

The X25519 key is derived from HEADRACE_SECRET_KEY, so every API process of an installation has the
same one and none is stored.
"""

from __future__ import annotations

import base64
import binascii
import hashlib

from nacl.exceptions import CryptoError
from nacl.public import PrivateKey, SealedBox

from headrace.errors import BadRequest, Unavailable
from headrace.queue.secrets import seal, unseal
from headrace.store import keys
from headrace.store.tables import EnvironmentKey
from headrace_api.deps import Backends

ALGORITHM = "libsodium.sealedbox.v1"
MAX_KEY_BYTES = 8192


def _private_key(secret_key: str) -> PrivateKey:
    if not secret_key:
        raise Unavailable("environment keys cannot be kept: set HEADRACE_SECRET_KEY to 64 hex digits")
    seal(secret_key, [])  # refuses a malformed secret key with its own sentence
    return PrivateKey(
        hashlib.blake2b(bytes.fromhex(secret_key), digest_size=32, person=b"headrace-envkeys").digest()
    )


def public_key(secret_key: str) -> str:
    """The key that clients seal for, base64 of 32 bytes."""
    return base64.b64encode(bytes(_private_key(secret_key).public_key)).decode()


def store_sealed(backends: Backends, org_id: str, name: str, ciphertext_b64: str) -> EnvironmentKey:
    """Open a sealed upload and keep the key, encrypted; raises BadRequest when it does not open."""
    secret_key = backends.settings.secret_key
    box = SealedBox(_private_key(secret_key))
    try:
        key = box.decrypt(base64.b64decode(ciphertext_b64, validate=True)).decode()
    except (binascii.Error, CryptoError, ValueError):
        raise BadRequest(
            "ciphertext_b64 does not open: seal the key with the public key of GET /crypto/public-key"
        ) from None
    if not key.strip() or len(key.encode()) > MAX_KEY_BYTES:
        raise BadRequest(f"an environment key must have 1 to {MAX_KEY_BYTES} bytes")
    with backends.store.write() as session:
        return keys.store_environment_key(session, org_id, name, key, seal(secret_key, [key]))


def open_keys(backends: Backends, org_id: str) -> list[str]:
    """The organisation's environment keys in the clear, newest first: only for calling its task app."""
    with backends.store.read() as session:
        rows = keys.environment_keys(session, org_id)
    return [key for row in rows for key in unseal(backends.settings.secret_key, row.ciphertext)]
