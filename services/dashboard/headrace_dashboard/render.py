"""Templates to responses. Everything put into a template is escaped; nothing is marked safe."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from headrace.errors import HeadraceError
from headrace_dashboard.access import COOKIE, LoginRequired
from headrace_dashboard.views.format import FILTERS

HERE = Path(__file__).parent
_TITLES = {
    400: "That request cannot be read",
    401: "No access",
    403: "No access",
    404: "Not found",
    409: "Not possible now",
    503: "The API does not answer",
}


@cache
def _static_version() -> str:
    """Changes with any static file, so that a browser never mixes two releases."""
    files = sorted(path for path in (HERE / "static").rglob("*") if path.is_file())
    return sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:10]


def _static(path: str) -> str:
    return f"/static/{path}?v={_static_version()}"


@cache
def environment() -> Environment:
    env = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters.update(FILTERS)
    env.globals["static"] = _static
    return env


def page(request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """Render a template with what every page shows: navigation, and whether there is a login to leave."""
    settings = request.app.state.settings
    text = (
        environment()
        .get_template(template)
        .render(
            path=request.url.path,
            flower_url=settings.flower_url,
            has_login=not settings.is_loopback and COOKIE in request.cookies,
            **values,
        )
    )
    return HTMLResponse(text, status_code=status)


def error_page(request: Request, error: HeadraceError, status: int | None = None) -> Response:
    """The error as one sentence: a page for people, JSON for scripts, the login where a key is missing."""
    code = status or error.status
    if "text/html" not in request.headers.get("accept", ""):
        return JSONResponse({"error": {"code": error.code, "message": error.message}}, status_code=code)
    if isinstance(error, LoginRequired):
        wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(f"/login?to={quote(wanted)}", status_code=303)
    return page(
        request,
        "error.html",
        status=code,
        title=_TITLES.get(code, "Something went wrong"),
        sentence=_sentence(error.message),
        recovers=code == 503,
    )


def _sentence(text: str) -> str:
    capital = text[:1].upper() + text[1:]
    return capital if capital.endswith((".", "!", "?")) else f"{capital}."
