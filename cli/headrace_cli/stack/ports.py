"""Which port each process listens on, and who sits on one that is taken."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass

from headrace.errors import Conflict

LOOPBACK = "127.0.0.1"
DEFAULT_BASE = 8760
OFFSETS = {"api": 0, "policy": 1, "dashboard": 2, "flower": 3, "engine": 4, "valkey": 5}
"""Each port is the base port plus its offset, unless it is given by its own option."""


@dataclass(frozen=True)
class Ports:
    """The loopback ports of one local stack."""

    api: int
    policy: int
    dashboard: int
    flower: int
    engine: int
    valkey: int

    @classmethod
    def derive(cls, base: int, given: dict[str, int | None]) -> Ports:
        """Ports from a base and those given one by one.

        >>> Ports.derive(9000, {"flower": 7777}).flower, Ports.derive(9000, {}).valkey
        (7777, 9005)
        """
        return cls(**{name: given.get(name) or base + offset for name, offset in OFFSETS.items()})


def require_free(wanted: dict[str, int], patience_s: float = 0.0) -> None:
    """Raise Conflict with one sentence when any of the named ports is taken (or named twice).

    `patience_s` waits for what is just ending, such as the Valkey of a stack that was killed.
    """
    by_port: dict[int, str] = {}
    for name, port in wanted.items():
        if port in by_port:
            raise Conflict(
                f"{by_port[port]} and {name} would both listen on port {port}; "
                f"give one of them another with --{name}-port"
            )
        by_port[port] = name
    deadline = time.monotonic() + patience_s
    while taken := [(name, port) for name, port in wanted.items() if not is_free(port)]:
        if time.monotonic() < deadline:
            time.sleep(0.1)
            continue
        listed = ", ".join(f"port {port} ({name}) is taken{_by_whom(port)}" for name, port in taken)
        options = " or ".join(f"--{name}-port" for name, _ in taken)
        raise Conflict(
            f"{listed}; stop what uses it, or choose another with {options} (all of them: --base-port)"
        )


def is_free(port: int) -> bool:
    """Whether a server could listen on this loopback port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: TIME_WAIT is free
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def _by_whom(port: int) -> str:
    import psutil

    try:
        listening = [c for c in psutil.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    except psutil.AccessDenied:  # macOS tells only root
        return ""
    for connection in listening:
        if connection.laddr and connection.laddr.port == port and connection.pid:
            try:
                return f" by `{psutil.Process(connection.pid).name()}` (pid {connection.pid})"
            except psutil.Error:
                return f" by pid {connection.pid}"
    return ""
