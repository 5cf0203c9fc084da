"""One API client per visitor's key, kept open between requests."""

from __future__ import annotations

import threading
from collections import OrderedDict

from starlette.requests import Request

from headrace.client import ApiClient
from headrace_dashboard.access import key_of

_MAX_CLIENTS = 64
TIMEOUT_S = 10.0


class Clients:
    """Clients by key; the least recently used is dropped beyond 64 (its connections close with it)."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url
        self._clients: OrderedDict[str, ApiClient] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, key: str) -> ApiClient:
        with self._lock:
            client = self._clients.get(key)
            if client is None:
                client = self._clients[key] = ApiClient(self.base_url, key, timeout_s=TIMEOUT_S)
            self._clients.move_to_end(key)
            while len(self._clients) > _MAX_CLIENTS:
                self._clients.popitem(last=False)
            return client

    def close(self) -> None:
        with self._lock:
            for client in self._clients.values():
                client.close()
            self._clients.clear()


def client_of(request: Request) -> ApiClient:
    """The API as the visitor of this request may see it."""
    return request.app.state.clients.of(key_of(request))
