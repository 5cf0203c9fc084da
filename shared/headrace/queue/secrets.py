"""Environment keys at rest and in flight: ciphertext that only a holder of HEADRACE_SECRET_KEY opens."""

from __future__ import annotations

import json

from nacl.exceptions import CryptoError
from nacl.secret import SecretBox

from headrace.errors import Unavailable


def seal(secret_key: str, keys: list[str]) -> bytes:
    """Encrypt a list of environment keys."""
    return bytes(SecretBox(_key(secret_key)).encrypt(json.dumps(keys).encode()))


def unseal(secret_key: str, ciphertext: bytes) -> list[str]:
    """The keys again; raises Unavailable when they were sealed under another secret key."""
    try:
        return json.loads(SecretBox(_key(secret_key)).decrypt(ciphertext))
    except CryptoError as error:
        raise Unavailable(
            "environment keys cannot be opened: HEADRACE_SECRET_KEY differs from the one they were sealed with"
        ) from error


def _key(secret_key: str) -> bytes:
    try:
        key = bytes.fromhex(secret_key)
    except ValueError:
        key = b""
    if len(key) != SecretBox.KEY_SIZE:
        raise Unavailable("HEADRACE_SECRET_KEY must be 64 hex digits")
    return key
