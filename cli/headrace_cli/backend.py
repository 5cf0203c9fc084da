"""Which API a command talks to, and with which key."""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from headrace.errors import ConfigError, Unauthorized, Unavailable

if TYPE_CHECKING:
    from headrace.client import ApiClient


def backend_options(command: Callable) -> Callable:
    """Add `--backend` and `--env-file` as parameters `backend` and `env_file`."""
    for option in (
        click.option("--env-file", "env_file", multiple=True, type=click.Path(path_type=Path, dir_okay=False),
                     help="File of KEY=VALUE lines; may be repeated. The shell's own variables win."),
        click.option("--backend", metavar="URL",
                     help="The API.  [default: HEADRACE_API_URL, else the stack that runs on this machine]"),
    ):  # fmt: skip
        command = option(command)
    return command


def with_api(command: Callable) -> Callable:
    """Give a command the parameter `api`, a connected client, in place of those options."""

    @backend_options
    @functools.wraps(command)
    def wrapped(*args, backend: str | None, env_file: tuple[Path, ...], **kwargs):
        from headrace_cli.envfiles import merged

        with connect(backend, merged(env_file)) as api:
            return command(*args, api=api, **kwargs)

    return wrapped


def connect(backend: str | None, environ: Mapping[str, str]) -> ApiClient:
    """A client for `--backend`, else HEADRACE_API_URL, else the stack that runs here.

    The key is HEADRACE_API_KEY or SYNTH_API_KEY; a loopback API may also be reached with the key that
    `headrace up` left in the home folder. Raises Unavailable or Unauthorized when there is none.
    """
    from headrace.client import ApiClient

    home = _home(environ)
    url = backend or environ.get("HEADRACE_API_URL") or _local_api(home)
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"backend = {url!r} is no address; write it like http://127.0.0.1:8760")
    key = environ.get("HEADRACE_API_KEY") or environ.get("SYNTH_API_KEY") or ""
    key_file = home / "api_key"
    if not key and is_loopback(parts.hostname) and key_file.is_file():
        key = key_file.read_text().strip()
    if not key:
        raise Unauthorized(f"no API key for {url}: set HEADRACE_API_KEY, in the shell or in an --env-file")
    return ApiClient(url, key)


def is_loopback(host: str) -> bool:
    """Whether a host means this machine.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("example.org")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _home(environ: Mapping[str, str]) -> Path:
    given = environ.get("HEADRACE_HOME")
    return Path(given).expanduser() if given else Path.home() / ".headrace"


def _local_api(home: Path) -> str:
    from headrace_cli.stack.state import is_held, read_state

    state = read_state(home) if is_held(home) else None
    if state is None:
        raise Unavailable(
            "no API to talk to: start one with `headrace up`, or give --backend URL (or HEADRACE_API_URL)"
        )
    return state.addresses["api"]
