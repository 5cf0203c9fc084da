"""Calling the policy from where the task app runs: the one thing that nobody else can test for it."""

from __future__ import annotations

import asyncio

import httpx
from pydantic import BaseModel

from headrace.errors import BadRequest

TIMEOUT_S = 5.0


class Where(BaseModel):
    url: str
    """Base address of a policy; only `/health` below it is called."""


class Reached(BaseModel):
    url: str
    status: int | None
    """HTTP status of `/health`; None when nothing answered."""
    error: str | None


async def reach(url: str) -> Reached:
    """GET `{url}/health` without following redirects; nothing of its body is told.

    Raises BadRequest for anything but an http(s) address.
    """
    try:
        parsed = httpx.URL(url)
        is_address = parsed.scheme in ("http", "https") and bool(parsed.host) and not parsed.query
    except httpx.InvalidURL:
        is_address = False
    if not is_address:
        raise BadRequest(f"url = {url!r} is not an http(s) address")
    try:
        # As the agent's own calls: without a proxy from the environment.
        async with (
            asyncio.timeout(TIMEOUT_S),
            httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False) as client,
            client.stream("GET", f"{url.rstrip('/')}/health") as answer,
        ):
            return Reached(url=url, status=answer.status_code, error=None)
    except (TimeoutError, httpx.TimeoutException):
        return Reached(url=url, status=None, error=f"no answer within {TIMEOUT_S:g} s")
    except httpx.HTTPError as error:
        return Reached(url=url, status=None, error=str(error) or type(error).__name__)
