"""Which API a command talks to, and with which key."""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
                     help="The API.  [default: HEADRACE_API_URL or BACKEND_BASE_URL, else the stack that runs here]"),
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


_ADDRESS_NAMES = ("HEADRACE_API_URL", "BACKEND_BASE_URL", "BACKEND_OVERRIDE")
_STAGES = ("local", "dev", "prod")


@dataclass(frozen=True)
class Target:
    """An API and the key for it."""

    url: str
    key: str

    @property
    def shown(self) -> str:
        """The address without what a user put before its host, which may be a password."""
        return without_userinfo(self.url)


def connect(backend: str | None, environ: Mapping[str, str]) -> ApiClient:
    """A client of `find_target`'s API."""
    from headrace.client import ApiClient

    target = find_target(backend, environ)
    return ApiClient(target.url, target.key)


def find_target(backend: str | None, environ: Mapping[str, str]) -> Target:
    """The API of `--backend`, else of the environment (`base_url`), else of the stack that runs here.

    The key is HEADRACE_API_KEY or SYNTH_API_KEY; a loopback API may also be reached with the key that
    `headrace up` left in the home folder. Raises Unavailable or Unauthorized when there is none.
    """
    home = home_folder(environ)
    url = base_url(backend, environ) or _local_api(home)
    key = environ.get("HEADRACE_API_KEY") or environ.get("SYNTH_API_KEY") or ""
    key_file = home / "api_key"
    if not key and is_loopback(urlsplit(url).hostname or ""):
        key = _kept_key(key_file)
    if not key:
        raise Unauthorized(
            f"no API key for {without_userinfo(url)}: set HEADRACE_API_KEY (or SYNTH_API_KEY) in the shell or in "
            "an --env-file; `headrace keys create NAME` makes one, on the machine that runs the API"
        )
    return Target(url, key)


def base_url(backend: str | None, environ: Mapping[str, str]) -> str | None:
    """The first of `--backend`, HEADRACE_API_URL, BACKEND_BASE_URL, BACKEND_OVERRIDE and, by
    SYNTH_BACKEND_URL_OVERRIDE = local, dev or prod, LOCAL_, DEV_ or PROD_BACKEND_URL; None without any.

    Raises ConfigError for what is no address.
    """
    given = [("backend", backend or ""), *((name, environ.get(name, "")) for name in _ADDRESS_NAMES)]
    name, url = next(((name, url.strip()) for name, url in given if url.strip()), ("", ""))
    if not url:
        name, url = _staged(environ)
    if not url:
        return None
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address:
        raise ConfigError(f"{name} = {url!r} is no address; write it like http://127.0.0.1:8760")
    return url


def _staged(environ: Mapping[str, str]) -> tuple[str, str]:
    stage = environ.get("SYNTH_BACKEND_URL_OVERRIDE", "").strip().lower()
    if not stage:
        return "", ""
    if stage not in _STAGES:
        raise ConfigError(f"SYNTH_BACKEND_URL_OVERRIDE = {stage!r} is not one of {', '.join(_STAGES)}")
    name = f"{stage.upper()}_BACKEND_URL"
    url = environ.get(name, "").strip()
    if not url and stage != "local":  # local without an address is the stack that runs here
        raise ConfigError(f"SYNTH_BACKEND_URL_OVERRIDE = {stage!r} needs the API's address in {name}")
    return name, url


def _kept_key(path: Path) -> str:
    """The key that `headrace up` left, or nothing where it left none or for another account."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def without_userinfo(url: str) -> str:
    """
    >>> without_userinfo("http://me:secret@host:1/x")
    'http://host:1/x'
    """
    parts = urlsplit(url)
    return url if "@" not in parts.netloc else parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def key_prefix(key: str) -> str:
    """The beginning of a key, at most four characters and never more than half of it.

    >>> key_prefix("abcdefghij"), key_prefix("abc"), key_prefix("")
    ('abcd...', 'a...', '...')
    """
    return key[: min(4, len(key) // 2)] + "..."


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


def home_folder(environ: Mapping[str, str]) -> Path:
    """Where `headrace up` keeps its state, and commands what they remember."""
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
