"""Other names of a route, rewritten to the one it is registered under.

Clients of the contract put `/api` or `/api/v1` before a path, and read any job under the family they
know. Registering each route under every name would make the start fifteen times slower.
"""

from __future__ import annotations

import re

from starlette.types import ASGIApp, Receive, Scope, Send

_PREFIX = re.compile(r"^/api(/v1)?(?=/)")
_JOB = re.compile(r"^/(rl|learning|sft|eval)/jobs/(?=.)")


def canonical(path: str) -> str:
    """The registered path.

    >>> canonical("/api/v1/learning/jobs/job_1/events")
    '/jobs/job_1/events'
    >>> canonical("/api/rl/jobs")
    '/rl/jobs'
    """
    return _JOB.sub("/jobs/", _PREFIX.sub("", path))


class CanonicalPaths:
    """Rewrites the path of each request before it is routed."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = {**scope, "path": canonical(scope["path"])}
        await self.app(scope, receive, send)
