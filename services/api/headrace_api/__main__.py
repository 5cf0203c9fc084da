"""`python -m headrace_api`: serve the API until SIGTERM."""

from __future__ import annotations

import uvicorn

from headrace import log
from headrace_api.app import create_app
from headrace_api.settings import ApiSettings


def main() -> None:
    settings = ApiSettings()
    log.configure("api")
    uvicorn.run(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        log_level="warning",
        timeout_graceful_shutdown=3,  # event streams do not end by themselves
    )


if __name__ == "__main__":
    main()
