"""Does the task app answer, and does it take our key? Asked before a job is made, one sentence per failure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx

from headrace.contracts.task_app import auth_headers
from headrace.errors import BadRequest, HeadraceError, Unauthorized, Unavailable

TIMEOUT_S = 10.0
_REFUSED = (400, 401, 403)
"""Released task apps answer a wrong key with 400."""


def check_task_app(url: str, keys: Sequence[str]) -> dict[str, Any]:
    """GET /health and /task_info with every key; returns the task's description.

    Raises Unavailable (down, slow, failing), Unauthorized (the key) or BadRequest (not a task app).
    """
    base = url.rstrip("/")
    with httpx.Client(headers=auth_headers(keys), timeout=TIMEOUT_S) as client:
        health = _get(client, base, "/health")
        if health.status_code >= 500:  # a wrong key shows in /task_info, whatever /health makes of it
            raise _failing(base, health)
        return _object(base, _accepted(base, _get(client, base, "/task_info"), keys))


def _get(client: httpx.Client, base: str, path: str) -> httpx.Response:
    try:
        return client.get(base + path)
    except httpx.TimeoutException as error:
        raise Unavailable(
            f"the task app at {base} did not answer GET {path} within {TIMEOUT_S:g} s"
        ) from error
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        raise BadRequest(f"task_url = {base!r} is no address; write it like http://127.0.0.1:8001") from error
    except httpx.HTTPError as error:
        raise Unavailable(
            f"the task app at {base} does not answer ({error or type(error).__name__}); "
            "start it with `headrace serve`, or correct task_url"
        ) from error


def _accepted(base: str, response: httpx.Response, keys: Sequence[str]) -> httpx.Response:
    if response.status_code in _REFUSED:
        if not keys:
            raise Unauthorized(
                f"the task app at {base} wants a key: set ENVIRONMENT_API_KEY to the one it has"
            )
        raise Unauthorized(
            f"the task app at {base} refuses the key {keys[0][:4]}... ({response.status_code}): "
            "set ENVIRONMENT_API_KEY to the key that it was started with"
        )
    if response.status_code >= 500:
        raise _failing(base, response)
    if response.status_code != 200:
        raise BadRequest(
            f"{base} answers GET /task_info with {response.status_code}, so it is no task app; correct task_url"
        )
    return response


def _object(base: str, response: httpx.Response) -> dict[str, Any]:
    try:
        body = response.json()
    except ValueError as error:
        raise BadRequest(
            f"the task app at {base} answers GET /task_info with something that is not JSON: {response.text[:80]!r}"
        ) from error
    if not isinstance(body, dict):
        raise BadRequest(
            f"the task app at {base} answers GET /task_info with a {type(body).__name__}, not an object"
        )
    return body


def _failing(base: str, response: httpx.Response) -> HeadraceError:
    path = response.request.url.path
    text = " ".join(response.text[:160].split())
    said = f": {text}" if text else ""
    return Unavailable(
        f"the task app at {base} answers {response.status_code} to GET {path}{said}; look at its log"
    )
