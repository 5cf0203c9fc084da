"""`/files`: upload, list, read and delete datasets (`/learning/files` is its older name)."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Self

from fastapi import APIRouter, File, Form, Query, UploadFile
from fastapi.responses import Response
from pydantic import BaseModel

from headrace.store import files as stored
from headrace.store.tables import StoredFile
from headrace_api.deps import BackendsDep, CallerDep
from headrace_api.files import service
from headrace_api.jobs import shown
from headrace_api.jobs.views import JobList

router = APIRouter(tags=["files"])


class FileView(BaseModel):
    id: str
    file_id: str
    filename: str
    purpose: str
    status: str
    bytes: int
    n_rows: int | None
    sha256: str
    created_at: datetime

    @classmethod
    def of(cls, row: StoredFile) -> Self:
        return cls(id=row.file_id, bytes=row.n_bytes, **row.model_dump(exclude={"org_id", "path", "error"}))


class FileList(BaseModel):
    files: list[FileView]
    data: list[FileView]
    """The same list; clients look under either name."""
    has_more: bool


class Deleted(BaseModel):
    id: str
    deleted: bool = True


@router.post("/files", status_code=201)
@router.post("/learning/files", status_code=201, include_in_schema=False)
def upload(
    backends: BackendsDep,
    caller: CallerDep,
    file: Annotated[UploadFile, File()],
    purpose: Annotated[str, Form()] = service.PURPOSE,
) -> FileView:
    row = service.store_upload(backends, caller.org_id, file.filename or "dataset.jsonl", purpose, file.file)
    return FileView.of(row)


@router.get("/files")
@router.get("/learning/files", include_in_schema=False)
def list_files(
    backends: BackendsDep,
    caller: CallerDep,
    purpose: str | None = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    after: str | None = None,
) -> FileList:
    """Newest first; `after` is the id of the last file seen."""
    with backends.store.read() as session:
        rows, has_more = stored.list_files(session, caller.org_id, purpose, limit, after)
    views = [FileView.of(row) for row in rows]
    return FileList(files=views, data=views, has_more=has_more)


@router.get("/files/{file_id}")
@router.get("/learning/files/{file_id}", include_in_schema=False)
def get_file(file_id: str, backends: BackendsDep, caller: CallerDep) -> FileView:
    with backends.store.read() as session:
        return FileView.of(stored.get_file(session, caller.org_id, file_id))


@router.get("/files/{file_id}/content")
def get_content(file_id: str, backends: BackendsDep, caller: CallerDep) -> Response:
    content = service.content(backends, caller.org_id, file_id)
    return Response(content, media_type="application/jsonl")


@router.get("/files/{file_id}/jobs")
def get_jobs(file_id: str, backends: BackendsDep, caller: CallerDep) -> JobList:
    with backends.store.read() as session:
        stored.get_file(session, caller.org_id, file_id)
        jobs = stored.jobs_using(session, caller.org_id, file_id)
        return JobList(jobs=shown.views(session, jobs), has_more=False)


@router.delete("/files/{file_id}")
def delete_file(file_id: str, backends: BackendsDep, caller: CallerDep) -> Deleted:
    service.delete(backends, caller.org_id, file_id)
    return Deleted(id=file_id)
