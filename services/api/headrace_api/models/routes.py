"""`/models`: what a job may start from (`/learning/models` is its older name)."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Self

from fastapi import APIRouter, Query
from pydantic import BaseModel

from headrace.contracts.job import JobType
from headrace.errors import NotFound
from headrace.store import models as resolving
from headrace.store import progress
from headrace.store.tables import Job
from headrace_api.deps import BackendsDep, CallerDep

router = APIRouter(tags=["models"])

Limit = Annotated[int, Query(ge=1, le=1000)]


class ModelView(BaseModel):
    id: str
    base_model: str
    created_at: datetime | None
    job_id: str | None
    status: str
    path: str | None = None
    """Of an alias: what models.toml says it stands for; the other facts are from there, too."""
    tool_parser: str | None = None
    reasoning_parser: str | None = None
    has_chat_template: bool = False
    """Of an alias: it has a chat template in place of the folder's own."""
    experimental: bool = False
    """Of an alias: a job has to allow it."""

    @classmethod
    def of(cls, job: Job) -> Self:
        assert job.model_id is not None
        base = job.model_id.removeprefix("ft:").rsplit(":", 1)[0]
        return cls(
            id=job.model_id, base_model=base, created_at=job.finished_at, job_id=job.job_id, status=job.status
        )


class ModelList(BaseModel):
    models: list[ModelView]
    data: list[ModelView]
    """The same list; clients look under either name."""


@router.get("/models")
@router.get("/learning/models", include_in_schema=False)
def list_models(backends: BackendsDep, caller: CallerDep, limit: Limit = 100) -> ModelList:
    """Model ids that jobs ended with, newest first, then the operator's aliases."""
    views = _trained(backends, caller, limit, None)
    views += [
        ModelView(
            id=name,
            base_model=name,
            created_at=None,
            job_id=None,
            status="base",
            path=entry.path,
            tool_parser=entry.tool_parser,
            reasoning_parser=entry.reasoning_parser,
            has_chat_template=entry.chat_template is not None,
            experimental=entry.experimental,
        )
        for name, entry in resolving.aliases(backends.settings).items()
    ]
    return ModelList(models=views, data=views)


@router.get("/learning/models/rl")
@router.get("/models/rl", include_in_schema=False)
def list_rl_models(backends: BackendsDep, caller: CallerDep, limit: Limit = 100) -> ModelList:
    views = _trained(backends, caller, limit, JobType.RL)
    return ModelList(models=views, data=views)


@router.get("/models/{model_id:path}")
@router.get("/learning/models/{model_id:path}", include_in_schema=False)
def get_model(model_id: str, backends: BackendsDep, caller: CallerDep) -> ModelView:
    for view in list_models(backends, caller, 1000).models:
        if view.id == model_id:
            return view
    raise NotFound(f"no model {model_id!r}; see GET /models")


def _trained(
    backends: BackendsDep, caller: CallerDep, limit: int, job_type: JobType | None
) -> list[ModelView]:
    with backends.store.read() as session:
        jobs = progress.finished_models(session, caller.org_id, limit, job_type)
        return [ModelView.of(job) for job in jobs]
