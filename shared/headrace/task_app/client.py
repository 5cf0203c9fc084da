"""Asking a task app: an answer within a time and a size, whatever the app sends."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from headrace.contracts.task_app import auth_headers
from headrace.errors import HeadraceError

MAX_BYTES = 4 * 1024 * 1024


class BadAnswer(HeadraceError):
    """The task app answered with something that cannot be used."""

    status = 502
    code = "bad_task_app_answer"


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes

    @property
    def text(self) -> str:
        """The beginning of the body, for a sentence about it."""
        return self.body[:2000].decode(errors="replace")

    def json(self) -> Any:
        """The body's JSON; raises ValueError where it is none."""
        try:
            return json.loads(self.body)
        except RecursionError:
            raise ValueError("it nests too deep") from None


def ask(
    client: httpx.Client,
    method: str,
    url: str,
    keys: Sequence[str],
    *,
    timeout_s: float,
    max_bytes: int = MAX_BYTES,
    json_body: Any = None,
) -> Answer:
    """Send one request with these environment keys, and read the answer within `timeout_s` in all.

    A time-out of reads alone is never met by a drip of bytes. Raises httpx.HTTPError where the app
    cannot be reached and BadAnswer where its answer is too large or does not end.
    """
    deadline, body = time.monotonic() + timeout_s, bytearray()
    with client.stream(method, url, headers=auth_headers(keys), timeout=timeout_s, json=json_body) as reply:
        for chunk in reply.iter_bytes():
            body += chunk
            if len(body) > max_bytes:
                raise BadAnswer(f"the task app's answer to {url} is larger than {max_bytes >> 20} MiB")
            if time.monotonic() > deadline:
                raise BadAnswer(f"the task app did not finish its answer to {url} within {timeout_s:g} s")
    return Answer(reply.status_code, bytes(body))
