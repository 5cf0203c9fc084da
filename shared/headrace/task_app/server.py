"""Running a task app by uvicorn."""

from __future__ import annotations

from headrace.errors import ConfigError
from headrace.task_app.app import TaskApp
from headrace.task_app.auth import is_loopback, valid_keys


def require_usable(app: TaskApp, host: str) -> None:
    """Raise ConfigError for an open app on a network, or one that wants a key and has none."""
    if app.auth == "none" and not is_loopback(host):
        raise ConfigError(
            f'auth = "none" with host {host}: an open app answers its own machine only; '
            "set ENVIRONMENT_API_KEY and leave auth out"
        )
    if app.auth == "keys" and not valid_keys():
        raise ConfigError('ENVIRONMENT_API_KEY is not set; set it, or make the app with auth = "none"')


def serve(app: TaskApp, host: str = "127.0.0.1", port: int = 8790) -> None:
    """Serve until SIGTERM or Ctrl-C; raises what `require_usable` does before that."""
    import uvicorn

    require_usable(app, host)
    # Idle connections outlive those of our clients, which close theirs after 2 s: no request is lost.
    uvicorn.run(
        app, host=host, port=port, log_level="warning", timeout_keep_alive=75, timeout_graceful_shutdown=5
    )
