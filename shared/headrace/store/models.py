"""From the name of a model to the folder that holds it: the one place that knows where models come from."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

from sqlalchemy import select
from sqlmodel import Session, col

from headrace.artifacts.templated import with_template
from headrace.errors import ConfigError
from headrace.settings import Settings
from headrace.store.model_table import ModelEntry, read_table
from headrace.store.tables import Checkpoint, Job

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


class UnknownModel(ConfigError):
    """No model that this caller may use has the name."""


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
    tool_parser: str | None = None
    """Of its base in models.toml: how the engine finds tool calls in a reply."""
    reasoning_parser: str | None = None
    """Of its base in models.toml: how the engine finds reasoning in a reply."""

    @property
    def engine_args(self) -> tuple[str, ...]:
        """What the engine has to be told to serve this model."""
        parsers = (
            ("--tool-call-parser", self.tool_parser), ("--reasoning-parser", self.reasoning_parser)
        )  # fmt: skip
        return tuple(word for option, name in parsers if name for word in (option, name))


def resolve_model(
    session: Session, org_id: str, name: str, settings: Settings, *, allow_experimental: bool = True
) -> ResolvedModel:
    """Find a model by local folder, alias, model id, checkpoint id or hub id in the local cache.

    Raises ConfigError that says what was looked for and where, or that the model is experimental and
    the job does not allow it. What was trained from an experimental model is not experimental.
    """
    table = read_table(settings)
    entry = table.get(name)
    if entry is not None:
        if entry.experimental and not allow_experimental:
            raise _experimental(name)
        return _of_entry(settings, org_id, name, entry)
    found = _find(session, org_id, name, settings)
    base = table.get(found.base_name)
    if base is None or not _is_trained(found, settings):
        return found
    # Not the chat template: a checkpoint's folder has the one that it was trained with.
    return replace(found, tool_parser=base.tool_parser, reasoning_parser=base.reasoning_parser)


def _find(session: Session, org_id: str, name: str, settings: Settings) -> ResolvedModel:
    """A model whose name is none of the operator's."""
    if name.startswith("ft:"):
        return _of_model_id(session, org_id, name, settings)
    if name.startswith("checkpoint:"):
        return _of_checkpoint(session, org_id, name, settings)
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


def _of_entry(settings: Settings, org_id: str, name: str, entry: ModelEntry) -> ResolvedModel:
    path = _local(settings, org_id, entry.path) or _cached(entry.path)
    if path is None:
        raise _missing(
            name, f"{settings.models_toml} maps it to {entry.path!r}, where there is no config.json"
        )
    if entry.chat_template is not None:
        try:
            path = with_template(path, entry.chat_template, settings.home / "model_views")
        except OSError as error:
            raise ConfigError(
                f"model {name!r} cannot be given the chat template {entry.chat_template}: {error}"
            ) from error
    return ResolvedModel(
        name, path, name, is_alias=True,
        tool_parser=entry.tool_parser, reasoning_parser=entry.reasoning_parser,
    )  # fmt: skip


def _is_trained(found: ResolvedModel, settings: Settings) -> bool:
    """Whether the folder is a checkpoint, not one that happens to be called like an alias."""
    return found.path.resolve().is_relative_to(settings.artifacts.resolve())


def _experimental(name: str) -> ConfigError:
    sentence = (
        f"model {name!r} is experimental on this server; send `allow_experimental: true` "
        "(`--allow-experimental` on the command line) to use it all the same"
    )
    return ConfigError(sentence, problems=[sentence])


def aliases(settings: Settings) -> dict[str, ModelEntry]:
    """The operator's names, from models.toml."""
    return read_table(settings)


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


def _missing(name: str, looked: str) -> UnknownModel:
    sentence = f"model {name!r} does not exist: {looked}"
    return UnknownModel(sentence, problems=[sentence])
