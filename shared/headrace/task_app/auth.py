"""Who may call a task app: holders of ENVIRONMENT_API_KEY or one of its aliases."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping

from headrace.errors import HeadraceError

KEY_NAMES = ("ENVIRONMENT_API_KEY", "dev_environment_api_key", "DEV_ENVIRONMENT_API_KEY")
ALIASES_NAME = "ENVIRONMENT_API_KEY_ALIASES"


class KeyRefused(HeadraceError):
    """400, not 401: what existing clients of the contract expect of a wrong key."""

    status = 400
    code = "unauthorised"


class KeyNotConfigured(HeadraceError):
    status = 503
    code = "missing_environment_api_key"


def valid_keys(environ: Mapping[str, str] = os.environ) -> list[str]:
    """The primary key first, then its aliases."""
    primary = next((environ[name] for name in KEY_NAMES if environ.get(name)), "")
    return [key for key in [primary.strip(), *_split(environ.get(ALIASES_NAME, ""))] if key]


def offered_keys(headers: Mapping[str, str]) -> list[str]:
    """Keys of a request: each of the three headers may hold a comma list."""
    bearer = headers.get("authorization", "")
    bearer = bearer[7:] if bearer[:7].lower() == "bearer " else ""
    texts = (headers.get("x-api-key", ""), headers.get("x-api-keys", ""), bearer)
    return [key for text in texts for key in _split(text)]


def check(headers: Mapping[str, str], valid: list[str]) -> None:
    """Pass silently, or raise KeyRefused or KeyNotConfigured."""
    if not valid:
        raise KeyNotConfigured(
            'no key is configured: set ENVIRONMENT_API_KEY, or run with auth = "none" on loopback'
        )
    offered = offered_keys(headers)
    if not set(offered) & set(valid):
        raise KeyRefused(
            "the environment API key is missing or wrong; send a valid one as X-API-Key",
            allowed_first15=[shown(key) for key in valid],
            allowed_count=len(valid),
            got_first15=[shown(key) for key in offered],
            got_lens=[len(key) for key in offered],
        )


def shown(key: str, n: int = 15) -> str:
    """A prefix that tells keys apart, never more than half of one."""
    return key[: min(n, len(key) // 2)]


def is_loopback(host: str | None) -> bool:
    """Whether an address or host name is this machine's own."""
    if host in ("localhost", "testclient"):
        return True
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
