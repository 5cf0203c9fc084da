"""Giving and forgetting a key, where the dashboard is bound to a network."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from headrace.errors import Unauthorized
from headrace_dashboard.access import COOKIE, local_path
from headrace_dashboard.forms import form_fields
from headrace_dashboard.render import page

router = APIRouter()

_KEEP_S = 14 * 24 * 3600


@router.get("/login")
def form(request: Request, to: str = "/") -> Response:
    if request.app.state.settings.is_loopback:
        return RedirectResponse(local_path(to), status_code=303)
    return page(request, "login.html", to=local_path(to), problem=None)


@router.post("/login")
async def log_in(request: Request) -> Response:
    """Keep the key in a cookie that scripts cannot read, once the API knows it."""
    fields = await form_fields(request)
    key, to = fields.get("key", "").strip(), local_path(fields.get("to", "/"))
    if not key or not key.isascii() or not key.isprintable():
        return page(request, "login.html", status=401, to=to, problem="Give an API key.")
    try:
        await run_in_threadpool(request.app.state.clients.of(key).list_jobs, limit=1)
    except Unauthorized:
        return page(request, "login.html", status=401, to=to, problem="The API does not know this key.")
    response = RedirectResponse(to, status_code=303)
    is_https = request.url.scheme == "https"
    response.set_cookie(COOKIE, key, max_age=_KEEP_S, httponly=True, samesite="strict", secure=is_https)
    return response


@router.post("/logout")
def log_out() -> Response:
    response = RedirectResponse("/login", status_code=303)
    response.delete_cookie(COOKIE)
    return response
