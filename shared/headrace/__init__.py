"""Headrace: self-hosted reinforcement-learning post-training over HTTP task apps.

This package holds what the services share. A task-app author needs only
`headrace.task_app`, a notebook only `headrace.Client`; importing `headrace` itself loads nothing heavy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.client.notebook import Client

__all__ = ["Client", "__version__"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`Client` brings an HTTP client with it, so it is loaded when it is asked for."""
    if name == "Client":
        from headrace.client.notebook import Client

        return Client
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
