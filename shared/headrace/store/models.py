"""From the name of a model to the folder that holds it: the one place that knows where models come from."""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlmodel import Session, col

from headrace.errors import ConfigError
from headrace.settings import Settings
from headrace.store.tables import Checkpoint, Job

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True)
class ResolvedModel:
    """A model that can be loaded."""

    name: str
    """As asked for."""
    path: Path
    """Folder in HF layout with a config.json."""
    base_name: str
    """The base that its training started from; the middle of `ft:<base>:<job>`."""
    is_alias: bool = False
    """The operator's models.toml says what the name stands for."""


def resolve_model(session: Session, org_id: str, name: str, settings: Settings) -> ResolvedModel:
    """Find a model by local folder, alias, model id, checkpoint id or hub id in the local cache.

    Raises ConfigError that says what was looked for and where.
    """
    if name.startswith("ft:"):
        return _of_model_id(session, org_id, name, settings)
    if name.startswith("checkpoint:"):
        return _of_checkpoint(session, org_id, name, settings)
    alias = aliases(settings).get(name)
    if alias is not None:
        path = _local(settings, org_id, alias) or _cached(alias)
        if path is None:
            raise _missing(
                name, f"{settings.models_toml} maps it to {alias!r}, where there is no config.json"
            )
        return ResolvedModel(name, path, name, is_alias=True)
    if (path := _local(settings, org_id, name)) is not None:
        return ResolvedModel(name, path, _base_of_folder(session, org_id, path, settings))
    if (path := _cached(name)) is not None:
        return ResolvedModel(name, path, name)
    raise _missing(
        name,
        f"looked for a local folder with a config.json, an alias in {settings.models_toml}, a model id "
        f"`ft:<base>:<job>`, `checkpoint:<id>`, and a hub model in the local cache {_hub_cache()}"
        + (f"; `hf download {name}` fetches it there" if _HUB_ID.fullmatch(name) else ""),
    )


def aliases(settings: Settings) -> dict[str, str]:
    """The operator's names, from `[models."<name>"] path = "..."` in models.toml."""
    path = settings.models_toml
    try:
        table: Any = tomllib.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    entries = table.get("models", {})
    if not isinstance(entries, dict):
        raise ConfigError(f'{path}: write one table per model, [models."<name>"] with a key `path`')
    found = {}
    for name, entry in entries.items():
        target = entry.get("path") if isinstance(entry, dict) else None
        if not isinstance(target, str) or not target:
            raise ConfigError(f'{path}: [models."{name}"] needs a key `path` (a folder or a hub id)')
        found[name] = target
    return found


def model_id(base_name: str, job_id: str) -> str:
    """The id of what a job trained: `ft:<base>:<job>`."""
    return f"ft:{base_name}:{job_id}"


def _of_model_id(session: Session, org_id: str, name: str, settings: Settings) -> ResolvedModel:
    statement = select(Job).where(col(Job.org_id) == org_id, col(Job.model_id) == name)
    job = session.execute(statement).scalar_one_or_none()
    if job is None:
        raise _missing(name, "no finished job of this organisation ended with this model id; see GET /models")
    kept = (
        select(Checkpoint)
        .where(
            col(Checkpoint.org_id) == org_id, col(Checkpoint.job_id) == job.job_id, col(Checkpoint.is_kept)
        )
        .order_by(col(Checkpoint.timeline).desc(), col(Checkpoint.iteration).desc())
        .limit(1)
    )
    checkpoint = session.execute(kept).scalar_one_or_none()
    if checkpoint is None:
        raise _missing(name, f"job {job.job_id} has no kept checkpoint")
    return ResolvedModel(name, _folder(checkpoint, name, settings), name[3:].rsplit(":", 1)[0])


def _of_checkpoint(session: Session, org_id: str, name: str, settings: Settings) -> ResolvedModel:
    checkpoint = session.get(Checkpoint, name.removeprefix("checkpoint:"))
    if checkpoint is None or checkpoint.org_id != org_id:
        raise _missing(name, "no checkpoint of this organisation has this id")
    path = _folder(checkpoint, name, settings)
    return ResolvedModel(name, path, _base_of_job(session, org_id, checkpoint.job_id, settings))


def _folder(checkpoint: Checkpoint, name: str, settings: Settings) -> Path:
    path = settings.artifacts / checkpoint.path
    if not (path / "config.json").is_file():
        raise _missing(name, f"its checkpoint folder {path} is gone")
    return path


def _base_of_job(session: Session, org_id: str, job_id: str, settings: Settings) -> str:
    """The base that a chain of jobs started from."""
    job = session.get_one(Job, job_id)
    if job.model.startswith("ft:"):
        return job.model[3:].rsplit(":", 1)[0]
    return resolve_model(session, org_id, job.model, settings).base_name


def _base_of_folder(session: Session, org_id: str, path: Path, settings: Settings) -> str:
    """A checkpoint's folder stands for its job's base; any other folder for its own name."""
    root = settings.artifacts.resolve()
    if path.is_relative_to(root):
        relative = str(path.relative_to(root))
        statement = select(Checkpoint).where(col(Checkpoint.path) == relative)
        checkpoint = session.execute(statement).scalars().first()
        if checkpoint is not None:
            return _base_of_job(session, org_id, checkpoint.job_id, settings)
    return path.name


def _local(settings: Settings, org_id: str, text: str) -> Path | None:
    """The folder that `text` names, absolute or under HEADRACE_HOME; None when it holds no model.

    A folder among the artifacts is found only by the organisation that owns it.
    """
    try:
        path = (settings.home / Path(text).expanduser()).resolve()
        if not (path / "config.json").is_file():
            return None
    except (OSError, RuntimeError):  # too long for a path, not readable, or `~nobody`
        return None
    root = settings.artifacts.resolve()
    if path.is_relative_to(root) and path.relative_to(root).parts[:1] != (org_id,):
        return None
    return path


def _hub_cache() -> Path:
    """The hub cache as its own clients find it."""
    if explicit := os.environ.get("HF_HUB_CACHE"):
        return Path(explicit).expanduser()
    home = os.environ.get("HF_HOME") or str(
        Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    )
    return Path(home).expanduser() / "hub"


def _cached(name: str) -> Path | None:
    """The snapshot of a hub id's `main` in the local cache."""
    repository = _hub_cache() / f"models--{name.replace('/', '--')}"
    try:
        commit = (repository / "refs" / "main").read_text().strip()
    except OSError:
        return None
    snapshot = repository / "snapshots" / commit
    return snapshot if commit and (snapshot / "config.json").is_file() else None


def _missing(name: str, looked: str) -> ConfigError:
    sentence = f"model {name!r} does not exist: {looked}"
    return ConfigError(sentence, problems=[sentence])
