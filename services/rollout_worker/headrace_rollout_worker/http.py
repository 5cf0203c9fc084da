"""HTTP of a worker thread: one `httpx.Client` each, whose every wait obeys the rollout's watch.

A read time-out bounds one read; an answer that drips a byte a second never meets it. Here each read is
cut into slices, and between slices the total deadline, the cancel flag and the lease are looked at.
Proxies from the environment are not used: a task app is reached directly.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpcore
import httpx

from headrace_rollout_worker.watch import Watch

MAX_ANSWER_BYTES = 64 * 1024 * 1024
CONNECT_S = 5.0


class AnswerTooLarge(Exception):
    """An answer above `MAX_ANSWER_BYTES`."""


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes
    headers: httpx.Headers


@cache
def _ssl_context() -> ssl.SSLContext:
    # Shared: building one takes longer than a small rollout's whole CPU time.
    return ssl.create_default_context()


class _WatchedStream(httpcore.NetworkStream):
    def __init__(self, inner: httpcore.NetworkStream, backend: _WatchedBackend) -> None:
        self._inner, self._backend = inner, backend

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        while True:
            try:
                return self._inner.read(max_bytes, timeout=self._backend.watch.slice_s())
            except httpcore.ReadTimeout:
                continue

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, timeout=max(0.1, self._backend.watch.remaining_s))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _WatchedStream(self._inner.start_tls(ssl_context, server_hostname, timeout), self._backend)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class _WatchedBackend(httpcore.NetworkBackend):
    """Connects like httpcore's own backend; its streams obey `watch`, which changes per request."""

    def __init__(self) -> None:
        self._inner = httpcore.SyncBackend()
        self.watch = Watch(0)

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        self.watch.slice_s()
        timeout = min(CONNECT_S, max(0.1, self.watch.remaining_s))
        stream = self._inner.connect_tcp(host, port, timeout, local_address, socket_options)
        return _WatchedStream(stream, self)


class _WatchedTransport(httpx.HTTPTransport):
    def __init__(self, backend: _WatchedBackend) -> None:
        super().__init__(verify=_ssl_context(), trust_env=False)
        # httpx has no public way to hand its pool a network backend.
        self._pool = httpcore.ConnectionPool(
            ssl_context=_ssl_context(),
            max_connections=None,
            max_keepalive_connections=4,
            keepalive_expiry=2.0,  # we drop an idle connection before any server does
            network_backend=backend,
        )


class WatchedClient:
    """Requests of one thread, one at a time."""

    def __init__(self) -> None:
        self._backend = _WatchedBackend()
        self._client = httpx.Client(transport=_WatchedTransport(self._backend), trust_env=False)

    def send(
        self, watch: Watch, method: str, url: str, *, headers: dict[str, str] | None = None, json: Any = None
    ) -> Answer:
        """The whole answer; raises a Stopped, httpx.HTTPError, httpx.InvalidURL or AnswerTooLarge."""
        self._backend.watch = watch
        with self._client.stream(method, url, headers=headers, json=json) as response:
            body = bytearray()
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > MAX_ANSWER_BYTES:
                    raise AnswerTooLarge(f"the answer is larger than {MAX_ANSWER_BYTES >> 20} MiB")
            return Answer(response.status_code, bytes(body), response.headers)


class ClientPerThread:
    """A `WatchedClient` for the calling thread: a client shared by 64 threads is half as fast."""

    def __init__(self) -> None:
        self._local = threading.local()

    def get(self) -> WatchedClient:
        if not hasattr(self._local, "client"):
            self._local.client = WatchedClient()
        return self._local.client
