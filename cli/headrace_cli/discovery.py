"""Files that a command offers when an option was left out: configs, env files, datasets."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from headrace.config.load import infer_type, parse_toml
from headrace.contracts.job import JobType
from headrace.errors import ConfigError

MAX_ENV_FILES = 20
MAX_FOLDERS = 2000
"""Folders looked into, so that a start in a home folder ends."""
_SKIPPED = {"__pycache__", "node_modules", "dist", "build", "venv", "site-packages"}


def find_configs(folder: Path, wanted: JobType | None, last_used: Path | None) -> list[tuple[Path, JobType]]:
    """TOML files below `folder` that say what job they are: the last used first, then the shallowest."""
    found = []
    for path in _shallowest_first(path for path in _files(folder) if path.suffix == ".toml"):
        job_type = _job_type(path)
        if job_type is not None and wanted in (None, job_type):
            found.append((path, job_type))
    return sorted(found, key=lambda entry: entry[0].resolve() != last_used)


def find_env_files(folder: Path, configs: Iterable[Path]) -> list[Path]:
    """`.env` of `folder`, of the configs' folders and of those below, at most 20."""
    below = _shallowest_first(path for path in _files(folder) if path.name == ".env")
    beside = [path for config in configs if (path := config.parent / ".env").is_file()]
    unique = {path.resolve(): path for path in reversed([*below[:1], *beside, *below])}
    return list(reversed(unique.values()))[:MAX_ENV_FILES]


def find_datasets(folder: Path) -> list[Path]:
    """JSONL files below `folder`, the shallowest first, at most 20."""
    return _shallowest_first(path for path in _files(folder) if path.suffix == ".jsonl")[:MAX_ENV_FILES]


def last_used(home: Path) -> Path | None:
    """The config that was submitted last from this account, if that is still known."""
    try:
        kept = json.loads(_memory(home).read_text())
        return Path(kept["last_config"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def remember(home: Path, config: Path) -> None:
    """Keep `config` as the one to offer first; a home folder that cannot be written is no failure."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        _memory(home).write_text(json.dumps({"last_config": str(config.resolve())}))
    except OSError:
        return


def _memory(home: Path) -> Path:
    return home / "train_cli.json"


def _files(folder: Path) -> Iterator[Path]:
    """Files below `folder`, as paths relative to it when it is the working directory."""
    for here, folders, names in islice(os.walk(folder), MAX_FOLDERS):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED and not name.startswith("."))
        for name in sorted(names):
            yield Path(here) / name


def _shallowest_first(paths: Iterable[Path]) -> list[Path]:
    return sorted(paths, key=lambda path: (len(path.parts), str(path)))


def _job_type(path: Path) -> JobType | None:
    try:
        return infer_type(parse_toml(path.read_text(), str(path)))
    except (OSError, UnicodeDecodeError, ConfigError):
        return None
