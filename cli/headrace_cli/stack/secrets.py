"""The local stack's own secrets: made once, kept in the home folder, readable by their owner only."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from headrace.artifacts.files import write_atomically
from headrace.errors import ConfigError

OWNER_ONLY = 0o600


@dataclass(frozen=True)
class StackSecrets:
    """What the processes of one stack share and nobody else may know."""

    api_key: str
    """Key of the first organisation, with which the CLI and the dashboard reach the API."""
    secret_key: str
    """64 hex digits that seal environment keys at rest."""
    worker_token: str
    trainer_token: str


def api_key_file(home: Path) -> Path:
    return home / "api_key"


def load_or_create(home: Path, environ: Mapping[str, str]) -> StackSecrets:
    """The stack's secrets; what is set in the environment wins over what is kept in `home`.

    Raises ConfigError when `secrets.json` cannot be read as what this function writes.
    """
    key_file, kept_file = api_key_file(home), home / "secrets.json"
    if not key_file.exists():
        _write(key_file, f"hr_{secrets.token_hex(24)}\n")
    kept = _read(kept_file) if kept_file.exists() else {}
    missing = {name: secrets.token_hex(32) for name in _KEPT if name not in kept}
    if missing:
        kept = {**kept, **missing}
        _write(kept_file, json.dumps(kept, indent=1) + "\n")
    for file in (key_file, kept_file):
        os.chmod(file, OWNER_ONLY)  # a copied home folder may have lost it
    given = {name: environ[variable] for name, variable in _KEPT.items() if environ.get(variable)}
    return StackSecrets(api_key=key_file.read_text().strip(), **{**kept, **given})


_KEPT = {
    "secret_key": "HEADRACE_SECRET_KEY",
    "worker_token": "HEADRACE_WORKER_TOKEN",
    "trainer_token": "HEADRACE_TRAINER_TOKEN",
}
"""Field of `secrets.json` -> the variable that the services read it from."""


def environment(held: StackSecrets, *names: str) -> dict[str, str]:
    """The variables through which a process gets exactly the named secrets."""
    values = asdict(held)
    return {_KEPT[name]: values[name] for name in names}


def _read(path: Path) -> dict[str, str]:
    try:
        held = json.loads(path.read_text())
        return {name: str(held[name]) for name in _KEPT if held.get(name)}
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{path} is not JSON; restore it, or delete it to make new secrets "
            "(environment keys stored under the old ones must then be uploaded again)"
        ) from error


def _write(path: Path, text: str) -> None:
    write_atomically(path, text.encode(), mode=OWNER_ONLY)
