"""The task app's keys: sealed and stored at the API, or made where there is none."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path

import click

from headrace.client import ApiClient
from headrace.errors import ConfigError, HeadraceError
from headrace_cli.backend import key_prefix
from headrace_cli.envfiles import write_variable
from headrace_cli.session import Json, Session

NAME = "ENVIRONMENT_API_KEY"
MINTED_BYTES = 32


def upload_environment_keys(api: ApiClient, keys: Sequence[str]) -> list[Json]:
    """Store the task app's keys at the API, each sealed before it leaves this process."""
    try:
        return [api.upload_environment_key(key) for key in keys]
    except ImportError as error:
        raise HeadraceError(
            "sealing ENVIRONMENT_API_KEY for the API needs PyNaCl, which is not installed: pip install pynacl"
        ) from error


def minted(session: Session, api: ApiClient) -> str | None:
    """A new key, written to the chosen env file and stored at the API; None when nobody wants one.

    Made with `--mint`, or on a terminal when the person agrees.
    """
    if not session.options.mint and not session.can_ask:
        return None
    path = _file(session)
    if not session.options.mint and not click.confirm(
        f"No {NAME} is known. Make one and write it to {path}?"
    ):
        return None
    key = secrets.token_hex(MINTED_BYTES)
    try:
        write_variable(path, NAME, key)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{NAME} cannot be written to {path}: {error}") from error
    upload_environment_keys(api, [key])
    session.say(f"Made {NAME} {key_prefix(key)}, written to {path} (mode 0600) and stored at the API")
    return key


def _file(session: Session) -> Path:
    if session.environment.files:
        return session.environment.files[-1]
    if session.options.mint:
        raise ConfigError(
            "--mint needs a file to write the new key to: give --env-file FILE (it may be a new one)"
        )
    return Path(".env")
