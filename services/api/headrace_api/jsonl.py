"""Exports as newline-delimited JSON: one object per line, sent while it is read, however long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from fastapi.responses import StreamingResponse
from pydantic import BaseModel

Format = Literal["json", "jsonl"]
"""The query key `format`: a page, or everything behind the cursor as a stream."""
MEDIA_TYPE = "application/x-ndjson"
LINES_PER_CHUNK = 500


def jsonl_response(rows: Iterable[BaseModel], filename: str) -> StreamingResponse:
    """Answer with every row of `rows`, read from a worker thread as the client takes them."""
    headers = {"Content-Disposition": f'attachment; filename="{filename}"', "Cache-Control": "no-store"}
    return StreamingResponse(_chunks(rows), media_type=MEDIA_TYPE, headers=headers)


def _chunks(rows: Iterable[BaseModel]) -> Iterator[str]:
    lines: list[str] = []
    for row in rows:
        lines.append(row.model_dump_json() + "\n")
        if len(lines) == LINES_PER_CHUNK:
            yield "".join(lines)
            lines = []
    if lines:
        yield "".join(lines)
