"""Wiring: settings, clients, live feeds, pages, and errors as sentences."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from headrace.errors import BadRequest, HeadraceError, NotFound
from headrace_dashboard.access import SECURITY_HEADERS, Guard
from headrace_dashboard.api import Clients
from headrace_dashboard.live import Hub
from headrace_dashboard.pages import actions, exports, health, job, jobs, login, rewards, rollouts, workers
from headrace_dashboard.render import error_page
from headrace_dashboard.settings import DashboardSettings
from headrace_dashboard.sparks import Sparks

HERE = Path(__file__).parent


def create_app(settings: DashboardSettings) -> FastAPI:
    """The dashboard as an ASGI app."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await app.state.hub.close()
        app.state.clients.close()

    app = FastAPI(title="Headrace dashboard", lifespan=lifespan, openapi_url=None)
    app.state.settings = settings
    app.state.clients = Clients(settings.api_url)
    app.state.hub = Hub(app.state.clients)
    app.state.sparks = Sparks()
    app.add_middleware(Guard, settings=settings)
    for page in (health, login, jobs, job, actions, rewards, exports, rollouts, workers):
        app.include_router(page.router)
    app.mount("/static", StaticFiles(directory=HERE / "static"), name="static")
    app.add_exception_handler(HeadraceError, _headrace_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _bad_query)
    app.add_exception_handler(Exception, _crash)
    return app


def _headrace_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HeadraceError)
    return error_page(request, error)


def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return error_page(request, NotFound(f"there is no page {request.url.path}"))
    return error_page(request, BadRequest(str(error.detail)), status=error.status_code)


def _bad_query(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    names = ", ".join(str(problem["loc"][-1]) for problem in error.errors())
    return error_page(request, BadRequest(f"the address has a value that cannot be read: {names}"))


def _crash(request: Request, error: Exception) -> Response:
    response = error_page(request, HeadraceError("the dashboard could not make this page; its log says why"))
    response.headers.update(SECURITY_HEADERS)  # this answer is made outside of the guard
    return response
