"""Calling a task app with each stored key. `/health` may answer without a key, so `/task_info` decides."""

from __future__ import annotations

import time
from typing import Any

import httpx

from headrace.errors import BadRequest

TIMEOUT_S = 10.0
TOTAL_S = 45.0
"""Clients wait 60 s for the whole verification."""


def verify(task_url: str, keys: list[str]) -> list[dict[str, Any]]:
    """One attempt per key, or one without a key where none is stored; keys never occur in the answer."""
    base = task_url.rstrip("/")
    try:
        is_address = httpx.URL(base).scheme in ("http", "https") and bool(httpx.URL(base).host)
    except httpx.InvalidURL:
        is_address = False
    if not is_address:
        raise BadRequest(f"endpoint_base_url = {task_url!r} is not an http(s) address")
    deadline = time.monotonic() + TOTAL_S
    attempts = []
    with httpx.Client(timeout=TIMEOUT_S) as client:
        for key in keys or [None]:
            attempts.append(_attempt(client, base, key))
            if time.monotonic() > deadline:
                break
    return attempts


def _attempt(client: httpx.Client, base: str, key: str | None) -> dict[str, Any]:
    headers = {"X-API-Key": key, "Authorization": f"Bearer {key}"} if key else {}
    attempt: dict[str, Any] = {"ok": False, "with_key": key is not None}
    for path in ("/health", "/task_info"):
        try:
            response = client.get(f"{base}{path}", headers=headers)
        except (httpx.HTTPError, UnicodeError) as error:
            return attempt | {"status": 0, "path": path, "error": f"{base} does not answer: {error}"}
        attempt |= {"status": response.status_code, "path": path}
        if response.status_code != 200:
            return attempt | {"error": f"{base}{path} answered {response.status_code}"}
    try:
        is_object = isinstance(response.json(), dict)
    except ValueError:
        is_object = False
    return attempt | (
        {"ok": True} if is_object else {"error": f"{base}/task_info did not answer with a JSON object"}
    )
