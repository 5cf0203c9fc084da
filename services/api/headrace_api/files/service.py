"""Rules of uploads: a file is stored only when every line can be trained on."""

from __future__ import annotations

import hashlib
from typing import BinaryIO

from headrace.artifacts.files import ArtifactStore
from headrace.contracts.dataset import check_chat_jsonl
from headrace.errors import Conflict, DataError
from headrace.ids import new_id
from headrace.store import files
from headrace.store.tables import StoredFile
from headrace_api.deps import Backends

PURPOSE = "fine-tune"
MAX_BYTES = 1 << 30


def store_upload(backends: Backends, org_id: str, filename: str, purpose: str, file: BinaryIO) -> StoredFile:
    """Check and keep an uploaded dataset; raises DataError that names each bad line, and keeps nothing then."""
    if purpose != PURPOSE:
        raise DataError(f"purpose = {purpose!r} is not known; use {PURPOSE!r}")
    content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise DataError(f"{filename} is larger than {MAX_BYTES >> 20} MiB; split it")
    n_rows = check_chat_jsonl(content.splitlines(), filename)
    file_id = new_id("file")
    row = StoredFile(
        file_id=file_id,
        org_id=org_id,
        filename=filename,
        purpose=purpose,
        status=files.READY,
        n_bytes=len(content),
        n_rows=n_rows,
        sha256=hashlib.sha256(content).hexdigest(),
        path=f"{org_id}/files/{file_id}.jsonl",
    )
    backends.artifacts.write(row.path, content)
    with backends.store.write() as session:
        session.add(row)
    return row


def content(backends: Backends, org_id: str, file_id: str) -> bytes:
    """The bytes as uploaded; raises Unavailable when they were changed on disk."""
    with backends.store.read() as session:
        row = files.get_file(session, org_id, file_id)
    return backends.artifacts.read(row.path, row.sha256)


def delete(backends: Backends, org_id: str, file_id: str) -> None:
    """Remove a file that no unfinished job reads."""
    with backends.store.write() as session:
        row = files.get_file(session, org_id, file_id)
        users = files.jobs_using(session, org_id, file_id, unfinished=True)
        if users:
            raise Conflict(f"file {file_id} is read by job {users[0].job_id}; cancel it or wait for its end")
        session.delete(row)
    _remove(backends.artifacts, row.path)


def _remove(artifacts: ArtifactStore, path: str) -> None:
    artifacts.path(path).unlink(missing_ok=True)
