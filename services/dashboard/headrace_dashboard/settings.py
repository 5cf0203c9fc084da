"""Where the dashboard listens, and whose key it uses."""

from __future__ import annotations

import ipaddress

from pydantic import Field

from headrace.settings import Settings


class DashboardSettings(Settings):
    """The shared settings and the dashboard's own."""

    host: str = Field(default="127.0.0.1", alias="HEADRACE_DASHBOARD_HOST")
    """Address to listen on. On a loopback address no login is asked for; elsewhere each visitor gives a key."""
    port: int = Field(default=8762, alias="HEADRACE_DASHBOARD_PORT", ge=0, le=65535)
    """Port to listen on."""
    api_key: str = Field(default="", alias="HEADRACE_API_KEY")
    """Key used for visitors on loopback; empty means the one in HEADRACE_HOME/api_key."""

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)

    def local_key(self) -> str:
        """The key for visitors on loopback, or an empty text when this machine has none (yet)."""
        if self.api_key:
            return self.api_key.strip()
        path = self.home / "api_key"
        return path.read_text().strip() if path.is_file() else ""


def is_loopback(host: str) -> bool:
    """Whether a host name or address means this machine only.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
