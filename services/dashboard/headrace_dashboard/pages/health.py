"""Whether the dashboard is alive, and whether its API answers."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse

from headrace.client import ApiClient
from headrace.errors import HeadraceError

router = APIRouter()


@router.get("/health")
async def health() -> dict[str, str]:
    return {"status": "ok"}


@router.get("/ready")
def ready(request: Request) -> JSONResponse:
    """503 with a sentence while the API does not answer or is not ready itself. Asks without a key."""
    try:
        with ApiClient(request.app.state.settings.api_url, timeout_s=3) as api:
            api.ready()
    except HeadraceError as error:
        return JSONResponse({"status": "not ready", "message": error.message}, status_code=503)
    return JSONResponse({"status": "ok"})
