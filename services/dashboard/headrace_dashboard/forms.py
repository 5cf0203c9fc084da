"""The small forms that browsers post."""

from __future__ import annotations

from urllib.parse import parse_qs

from starlette.requests import Request

from headrace.errors import BadRequest

MAX_BODY = 4096


async def form_fields(request: Request) -> dict[str, str]:
    """The first value of each field; raises BadRequest for a body above 4096 bytes."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY:
            raise BadRequest(f"the form is larger than {MAX_BODY} bytes")
    return {name: values[0] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}
