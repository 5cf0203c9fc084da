"""Structured logs: readable lines on a terminal, JSON lines elsewhere."""

from __future__ import annotations

import logging
import sys

import structlog


def configure(service: str) -> None:
    """Set up logging for a process; called from a `__main__` only, never by a library."""
    on_terminal = sys.stderr.isatty()
    renderer = structlog.dev.ConsoleRenderer() if on_terminal else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(service=service)
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)


def get(name: str) -> structlog.stdlib.BoundLogger:
    """A logger; event names are dotted snake case with fields (`rollout.published rollout_id=...`)."""
    return structlog.get_logger(name)
