"""Where the API is and with which key, when nobody said: the environment, else this machine's stack."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from headrace.errors import ConfigError, Unauthorized, Unavailable

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def find(base_url: str | None, api_key: str | None, environ: Mapping[str, str]) -> tuple[str, str]:
    """(address, key): what was given, else HEADRACE_API_URL and HEADRACE_API_KEY (or SYNTH_API_KEY), else
    what `headrace up` wrote into its home folder; its key is used for loopback addresses only.

    Raises Unavailable without an address and Unauthorized without a key.
    """
    home = Path(environ.get("HEADRACE_HOME") or Path.home() / ".headrace").expanduser()
    url = base_url or environ.get("HEADRACE_API_URL") or _stack_address(home)
    host = urlsplit(url).hostname
    if not url.startswith(("http://", "https://")) or not host:
        raise ConfigError(f"base_url = {url!r} is no address; write it like http://127.0.0.1:8760")
    key = api_key or environ.get("HEADRACE_API_KEY") or environ.get("SYNTH_API_KEY") or ""
    if not key and host in LOOPBACK and (home / "api_key").is_file():
        key = (home / "api_key").read_text().strip()
    if not key:
        raise Unauthorized(f"no API key for {url}: give api_key, or set HEADRACE_API_KEY")
    return url, key


def _stack_address(home: Path) -> str:
    try:
        return str(json.loads((home / "state.json").read_text())["addresses"]["api"])
    except (OSError, ValueError, KeyError, TypeError):
        raise Unavailable(
            "no API to talk to: start one with `headrace up`, or give base_url (or set HEADRACE_API_URL)"
        ) from None
