"""Settings of the policy process."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from headrace.settings import Settings


class PolicySettings(Settings):
    """Settings of the gateway and of the engine that it owns."""

    host: str = Field(default="127.0.0.1", alias="HEADRACE_POLICY_HOST")
    """Address that the gateway binds."""
    port: int = Field(default=8761, alias="HEADRACE_POLICY_PORT")
    engine_port: int = Field(default=8764, alias="HEADRACE_ENGINE_PORT")
    """Loopback port of the engine; its administrative routes have no authentication."""
    engine_device: Literal["cpu", "cuda"] = Field(default="cpu", alias="HEADRACE_ENGINE_DEVICE")
    engine_start_timeout_s: float = Field(default=600.0, alias="HEADRACE_ENGINE_START_TIMEOUT", gt=0)
    """An engine that does not answer /health within this many seconds has failed."""

    @property
    def engine_url(self) -> str:
        return f"http://127.0.0.1:{self.engine_port}"

    @property
    def engine_log(self) -> Path:
        return self.home / "logs" / "engine.log"
