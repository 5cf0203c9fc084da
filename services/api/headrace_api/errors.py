"""The one place where an error becomes an HTTP answer: `{"error": {code, message, problems?}, "detail"}`."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from headrace import log
from headrace.errors import HeadraceError

logger = log.get(__name__)


def install(app: FastAPI) -> None:
    app.add_exception_handler(HeadraceError, _headrace_error)
    app.add_exception_handler(RequestValidationError, _invalid_request)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _fault)


def _answer(status: int, code: str, message: str, problems: object = None, **headers: str) -> JSONResponse:
    error: dict[str, object] = {"code": code, "message": message}
    if problems:
        error["problems"] = problems
    return JSONResponse({"error": error, "detail": message}, status_code=status, headers=headers)


def _headrace_error(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HeadraceError)
    headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else {}
    if "retry_after_s" in error.details:
        headers["Retry-After"] = str(error.details["retry_after_s"])
    return _answer(error.status, error.code, error.message, error.details.get("problems"), **headers)


def _invalid_request(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    problems = [_sentence(detail) for detail in error.errors()]
    return _answer(422, "invalid_request", "; ".join(problems), problems)


def _sentence(detail: dict) -> str:
    where, *path = [str(part) for part in detail["loc"]] or ["request"]
    if detail["type"] == "json_invalid":
        return f"the body is not valid JSON: {detail['ctx']['error']} at character {detail['loc'][-1]}"
    name = f"{where} `{'.'.join(path)}`" if path else f"the {where}"
    if detail["type"] == "missing":
        return f"{name} is missing"
    value = detail.get("input")
    shown = f" = {value!r}" if isinstance(value, str | int | float | bool) else ""
    return f"{name}{shown}: {detail['msg'][:1].lower()}{detail['msg'][1:]}"


def _http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    sentences = {
        404: ("not_found", f"no route {request.url.path}"),
        405: ("method_not_allowed", f"{request.method} is not possible on {request.url.path}"),
    }
    code, message = sentences.get(error.status_code, ("http_error", str(error.detail)))
    return _answer(error.status_code, code, message)


def _fault(request: Request, error: Exception) -> JSONResponse:
    logger.error("request.failed", method=request.method, path=request.url.path, exc_info=error)
    return _answer(
        500, "internal_error", f"{request.method} {request.url.path} failed; the API's log says why"
    )
