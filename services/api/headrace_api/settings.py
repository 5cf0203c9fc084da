"""Settings of the API process."""

from __future__ import annotations

from pydantic import Field

from headrace.settings import Settings


class ApiSettings(Settings):
    host: str = Field(default="127.0.0.1", alias="HEADRACE_API_HOST")
    """Address to listen on; loopback unless an operator decides otherwise."""
    port: int = Field(default=8760, alias="HEADRACE_API_PORT", ge=0, le=65535)
    bootstrap_key: str = Field(default="", alias="HEADRACE_BOOTSTRAP_KEY")
    """A key made valid for the organisation `local` at start; empty makes none."""
