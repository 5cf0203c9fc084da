"""`python -m headrace_dashboard`: serve the dashboard until SIGTERM."""

from __future__ import annotations

import uvicorn

from headrace import log
from headrace_dashboard.app import create_app
from headrace_dashboard.settings import DashboardSettings


def main() -> None:
    log.configure("dashboard")
    settings = DashboardSettings()
    log.get(__name__).info("dashboard.starting", host=settings.host, port=settings.port)
    uvicorn.run(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        log_level="warning",
        access_log=False,
        server_header=False,
        # A page that is being watched holds a connection open for as long as it is looked at.
        timeout_graceful_shutdown=1,
    )


if __name__ == "__main__":
    main()
