"""One HTTP connection to an API: how a request is sent, and how a refusal becomes an exception."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import httpx

from headrace import errors
from headrace.errors import HeadraceError, Unavailable

Json = dict[str, Any]

STREAM_IDLE_S = 60.0
"""A stream that says nothing for so long is taken as cut; the API sends something every ten seconds."""

_BY_CODE: dict[str, type[HeadraceError]] = {
    kind.code: kind
    for kind in (
        errors.ConfigError, errors.BadRequest, errors.Unauthorized, errors.Forbidden, errors.NotFound,
        errors.Conflict, errors.StaleTimeline, errors.Gone, errors.DataError, errors.Unavailable,
        errors.JobFailed,
    )
}  # fmt: skip
_BY_STATUS: dict[int, type[HeadraceError]] = {
    400: errors.BadRequest,
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.Conflict,
    410: errors.Gone,
    422: errors.ConfigError,
    503: errors.Unavailable,
}


class Transport:
    """Sends requests to one API with one key. Not shared between threads that close it."""

    def __init__(self, base_url: str, api_key: str = "", *, timeout_s: float = 30.0) -> None:
        self.base_url = base_url.rstrip("/").removesuffix("/v1").removesuffix("/api")
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._connect_s = min(5.0, timeout_s)
        self.last_status = 0
        """HTTP status of the last answer; 0 before the first."""
        self._http = httpx.Client(
            base_url=f"{self.base_url}/api/v1",
            headers=headers,
            timeout=httpx.Timeout(timeout_s, connect=self._connect_s),
            verify=self.base_url.startswith("https"),  # loading certificates is slow, and http needs none
        )

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _send(self, method: str, path: str, **request: Any) -> Any:
        try:
            response = self._http.request(method, path, **request)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error
        self.last_status = response.status_code
        if response.is_error:
            raise _error(response)
        try:
            return response.json()
        except ValueError as error:
            raise Unavailable(
                f"{self.base_url} answered {method} {path} with something other than JSON"
            ) from error

    @contextmanager
    def _streaming(self, method: str, path: str, **request: Any) -> Iterator[httpx.Response]:
        """A response whose body is read as it comes; a cut, also in its middle, raises Unavailable."""
        timeout = httpx.Timeout(STREAM_IDLE_S, connect=self._connect_s)
        try:
            with self._http.stream(method, path, timeout=timeout, **request) as response:
                if response.is_error:
                    response.read()
                    raise _error(response)
                yield response
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error

    def _rows(self, path: str, params: list[tuple[str, Any]]) -> Iterator[Json]:
        """The lines of a newline-delimited JSON export, one by one."""
        with self._streaming("GET", path, params=[("format", "jsonl"), *params]) as response:
            for line in response.iter_lines():
                if line.strip():
                    yield json.loads(line)

    def _messages(self, path: str, params: list[tuple[str, Any]]) -> Iterator[tuple[str, Json]]:
        """(event name, data) of each server-sent message; the name is `message` where none was sent."""
        headers = {"Accept": "text/event-stream"}
        with self._streaming("GET", path, params=params, headers=headers) as response:
            name, data = "message", ""
            for line in response.iter_lines():
                if line.startswith("event:"):
                    name = line[6:].strip()
                elif line.startswith("data:"):
                    data += line[5:].strip()
                elif not line and data:
                    yield name, json.loads(data)
                    name, data = "message", ""

    def _unreachable(self, error: httpx.HTTPError) -> Unavailable:
        return Unavailable(f"the API at {self.base_url} does not answer: {error or type(error).__name__}")


def given(**params: Any) -> list[tuple[str, Any]]:
    """Query parameters, without those that were not given."""
    return [(name, value) for name, value in params.items() if value is not None]


def _error(response: httpx.Response) -> HeadraceError:
    """The server's refusal as the exception that its code names."""
    try:
        body = response.json()
    except ValueError:
        body = {}
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict):
        detail = body.get("detail") if isinstance(body, dict) else None
        error = {"message": detail or f"{response.request.url} answered {response.status_code}"}
    kind = _BY_CODE.get(error.get("code", "")) or _BY_STATUS.get(response.status_code, HeadraceError)
    details = {"problems": error["problems"]} if error.get("problems") else {}
    return kind(str(error["message"]), **details)
