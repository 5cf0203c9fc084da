"""The API over httpx: `ApiClient` for programs (the CLI, the dashboard), `Client` for notebooks.

A refusal raises the `HeadraceError` subclass of its status with the server's sentence, and
`details["problems"]` where the server listed several; a server that does not answer raises
`Unavailable` and names its address. There is one client: `Client` is an `ApiClient` that finds its
address and key by itself and has a notebook's verbs on top.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.client.api import ApiClient

if TYPE_CHECKING:
    from headrace.client.notebook import Client

__all__ = ["ApiClient", "Client"]


def __getattr__(name: str) -> Any:
    """`Client` is loaded when it is asked for: the CLI and the dashboard have no use for it."""
    if name == "Client":
        from headrace.client.notebook import Client

        return Client
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
