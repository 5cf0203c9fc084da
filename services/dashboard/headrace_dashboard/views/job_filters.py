"""The filters of the job list as its address has them: checked, and carried from page to page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlencode

from starlette.datastructures import QueryParams

from headrace.contracts.job import JobStatus, JobType
from headrace.errors import BadRequest

Pairs = tuple[tuple[str, str], ...]

TEXTS = ("type", "status", "pool", "model")
PAIRS = ("tag", "data")
_KNOWN = {"type": tuple(JobType), "status": tuple(JobStatus)}


@dataclass(frozen=True)
class JobFilters:
    """What the visitor asked for; an empty text admits all."""

    type: str = ""
    status: str = ""
    pool: str = ""
    model: str = ""
    tag: Pairs = ()
    data: Pairs = ()
    after: str = ""
    """The last job of the page before."""

    @classmethod
    def parse(cls, query: QueryParams) -> Self:
        """Read an address; raises BadRequest that names the key, the value and what it may be.

        >>> JobFilters.parse(QueryParams("type=rl&tag=team:a:b&tag=&offset=3")).tag
        (('team', 'a:b'),)
        """
        texts = {name: query.get(name, "").strip() for name in (*TEXTS, "after")}
        for name, values in _KNOWN.items():
            if texts[name] and texts[name] not in values:
                raise BadRequest(f"{name} = {texts[name]!r} is none of {', '.join(values)}")
        pairs = {name: _pairs(name, query.getlist(name)) for name in PAIRS}
        return cls(**texts, tag=pairs["tag"], data=pairs["data"])

    @property
    def is_any(self) -> bool:
        return any((self.type, self.status, self.pool, self.model, self.tag, self.data))

    def link(self, after: str = "") -> str:
        """The address of the page behind the job `after`, with the same filters.

        >>> JobFilters(status="failed", tag=(("team", "a&b"),)).link("job_1")
        '/jobs?status=failed&tag=team%3Aa%26b&after=job_1'
        """
        query = [(name, getattr(self, name)) for name in TEXTS if getattr(self, name)]
        query += [(name, f"{key}:{value}") for name in PAIRS for key, value in getattr(self, name)]
        query += [("after", after)] if after else []
        return f"/jobs?{urlencode(query)}" if query else "/jobs"

    def for_api(self) -> dict[str, Any]:
        """As `ApiClient.jobs_page` takes them."""
        return {name: getattr(self, name) or None for name in (*TEXTS, "after")} | {
            "tags": dict(self.tag) or None,
            "data": dict(self.data) or None,
        }


def _pairs(name: str, texts: Sequence[str]) -> Pairs:
    found: dict[str, str] = {}
    for text in texts:
        key, colon, value = (part.strip() for part in text.partition(":"))
        if not text.strip():
            continue
        if not (key and colon and value):
            raise BadRequest(f"{name} = {text!r} must be written as name:value")
        if found.setdefault(key, value) != value:
            raise BadRequest(f"{name} {key!r} is given twice, and a job has one value of it")
    return tuple(found.items())
