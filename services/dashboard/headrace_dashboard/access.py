"""Who may see a page: the visitor's own API key, and the checks that a browser makes necessary.

On loopback every visitor uses this machine's key, so a foreign web page must not reach it through
the browser: the Host header has to name this machine (DNS rebinding), and a POST has to come from
the dashboard itself (cross-site requests).
"""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.errors import Unauthorized
from headrace_dashboard.settings import DashboardSettings, is_loopback

COOKIE = "headrace_key"

SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class LoginRequired(Unauthorized):
    """The visitor has given no key yet; the page to show is the login."""

    code = "login_required"


def key_of(request: Request) -> str:
    """The visitor's API key. Raises LoginRequired (bound to a network) or Unauthorized (no local key)."""
    settings: DashboardSettings = request.app.state.settings
    if not settings.is_loopback:
        key = request.cookies.get(COOKIE, "")
        if not key:
            raise LoginRequired("give an API key to see this page")
        return key
    key = settings.local_key()
    if not key:
        raise Unauthorized(
            f"this machine has no API key: set HEADRACE_API_KEY, or start the stack, "
            f"which writes {settings.home / 'api_key'}"
        )
    return key


def local_path(text: str) -> str:
    """A path of this site to go to after the login; anything else becomes the front page.

    >>> local_path("/jobs/job_1"), local_path("//evil.example"), local_path("https://evil.example")
    ('/jobs/job_1', '/', '/')
    """
    parts = urlsplit(text)
    is_local = text.startswith("/") and not text.startswith(("//", "/\\")) and not parts.netloc
    return text if is_local and text.isprintable() else "/"


class Guard:
    """ASGI middleware: refuses foreign hosts and foreign POSTs, and sets the security headers."""

    def __init__(self, app: ASGIApp, settings: DashboardSettings) -> None:
        self.app = app
        self.settings = settings
        self.own_host = urlsplit(settings.dashboard_url).hostname or ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        refusal = self._refusal(scope["method"], Headers(scope=scope))

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        if refusal:
            await PlainTextResponse(refusal, status_code=403)(scope, receive, send_with_headers)
            return
        await self.app(scope, receive, send_with_headers)

    def _refusal(self, method: str, headers: Headers) -> str | None:
        host = headers.get("host", "")
        name = urlsplit(f"//{host}").hostname or ""
        if self.settings.is_loopback and not is_loopback(name) and name != self.own_host:
            return (
                f"The dashboard does not answer to the host name {name!r}: set HEADRACE_DASHBOARD_URL to it."
            )
        if method in ("GET", "HEAD"):
            return None
        origin = headers.get("origin")
        is_same_site = headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")
        is_own = origin is None or urlsplit(origin).netloc == host
        return None if is_own and is_same_site else "This request came from another site and was refused."
