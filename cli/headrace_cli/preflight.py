"""Does the task app answer, and does it take a key? Asked from here, with one sentence per failure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from headrace.contracts.task_app import TaskFacts, auth_headers, likely_cause
from headrace.errors import BadRequest, HeadraceError, Unauthorized, Unavailable
from headrace_cli.backend import key_prefix

TIMEOUT_S = 10.0
REFUSED = (400, 401, 403)
"""Released task apps answer a wrong key with 400."""


@dataclass(frozen=True)
class Look:
    """What the task app said to this machine: its facts, or the error that stands for them."""

    facts: TaskFacts | None = None
    error: HeadraceError | None = None
    lines: tuple[str, ...] = ()
    """Where it refused: each key's beginning, the status and the likely cause."""

    @property
    def is_refusal(self) -> bool:
        return isinstance(self.error, Unauthorized)


def look(url: str, keys: Sequence[str]) -> Look:
    """`check_task_app` as a value; keys that are refused together are tried one by one for the report."""
    try:
        return Look(check_task_app(url, keys))
    except Unauthorized as error:
        return Look(error=error, lines=tuple(_line(url, key) for key in keys))
    except HeadraceError as error:
        return Look(error=error)


def check_task_app(url: str, keys: Sequence[str]) -> TaskFacts:
    """GET /health and /task_info with every key; returns what the app tells of itself.

    Raises Unavailable (down, slow, failing), Unauthorized (the key) or BadRequest (not a task app).
    """
    base = url.rstrip("/")
    with httpx.Client(headers=auth_headers(keys), timeout=TIMEOUT_S) as client:
        health = _get(client, base, "/health")
        if health.status_code >= 500:  # a wrong key shows in /task_info, whatever /health makes of it
            raise _failing(base, health)
        taskset = _object(base, _accepted(base, _get(client, base, "/task_info"), keys))
        return TaskFacts.parse(taskset, _one(client, base, TaskFacts.parse(taskset)))


def _one(client: httpx.Client, base: str, facts: TaskFacts) -> Any:
    """The TaskInfo of one seed, which has the rubrics and limits; they only help a person choose."""
    seed = facts.seed_range[0] if facts.seed_range else 0
    try:
        return client.get(f"{base}/task_info", params={"seed": seed}).json()
    except (httpx.HTTPError, ValueError):
        return None


def _line(url: str, key: str) -> str:
    who = f"key {key_prefix(key)} from here"
    try:
        with httpx.Client(headers=auth_headers([key]), timeout=TIMEOUT_S) as client:
            answer = client.get(url.rstrip("/") + "/task_info")
    except httpx.HTTPError as error:
        return f"{who}: {error or type(error).__name__}"
    cause = likely_cause(answer.status_code, answer.text[:2000])
    if cause is None:
        cause = "accepted" if answer.status_code == 200 else "it answers in an unknown way"
    return f"{who}: {answer.status_code} at /task_info: {cause}"


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
    if response.status_code in REFUSED:
        if not keys:
            raise Unauthorized(
                f"the task app at {base} wants a key: set ENVIRONMENT_API_KEY to the one it has, in the shell or "
                "in an --env-file, or have one made with `headrace train --mint --env-file FILE`"
            )
        shown = ", ".join(key_prefix(key) for key in keys)
        raise Unauthorized(
            f"the task app at {base} refuses the key{'s' if len(keys) > 1 else ''} {shown} "
            f"({response.status_code}): set ENVIRONMENT_API_KEY to the key that it was started with"
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
