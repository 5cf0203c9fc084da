"""Celery around the plays: a pool of threads, a heartbeat, and a stop within a bound.

On threads Celery's time limits do nothing and its warm shutdown waits without end, so the deadline of
a rollout lies in `watch` and the one of the stop lies here.
"""

from __future__ import annotations

import os
import socket
import threading
from contextlib import ExitStack

from celery.signals import worker_ready, worker_shutting_down

from headrace import log
from headrace.artifacts.files import ArtifactStore
from headrace.queue import names
from headrace.queue.alive import beating
from headrace.queue.connect import connect
from headrace.queue.send import celery_app
from headrace_rollout_worker.attempt import Tools
from headrace_rollout_worker.http import ClientPerThread
from headrace_rollout_worker.settings import WorkerSettings
from headrace_rollout_worker.tasks import register

FINISH_S = 6.0
"""After SIGTERM: time for rollouts in flight to end by themselves, then they are given back."""
EXIT_S = 10.0
"""After SIGTERM: the process is gone, whatever still runs; leases then return what it held."""


def process_name() -> str:
    return f"worker:{socket.gethostname()}:{os.getpid()}"


def worker_arguments(settings: WorkerSettings) -> list[str]:
    """Arguments of `celery worker`: events for Flower; no gossip between workers that never talk."""
    return [
        *("worker", "--pool", "threads", "--concurrency", str(settings.concurrency)),
        *("--queues", names.rollout_queue(settings.pool), "--hostname", f"rollouts-{os.getpid()}@%h"),
        *("--task-events", "--without-gossip", "--without-mingle", "--loglevel", "WARNING"),
    ]


def run(settings: WorkerSettings) -> None:
    """Play orders of the pool's queue until SIGTERM or Ctrl-C."""
    app = celery_app(settings.redis_url, "headrace-rollout-worker")
    # Log lines are ours (structlog on stderr); the events of every worker expire with Flower's view.
    app.conf.update(worker_hijack_root_logger=False, worker_redirect_stdouts=False)
    tools = Tools(settings, connect(settings.redis_url), ArtifactStore(settings.artifacts), ClientPerThread())
    register(app, tools)
    with ExitStack() as stack:
        _follow_life(tools, stack)
        app.worker_main(worker_arguments(settings))


def _follow_life(tools: Tools, stack: ExitStack) -> None:
    logger = log.get(__name__)

    def on_ready(**_: object) -> None:
        stack.enter_context(beating(tools.client, process_name()))
        logger.info("worker.ready", pool=tools.settings.pool, concurrency=tools.settings.concurrency)

    def on_shutting_down(**_: object) -> None:
        logger.info("worker.stopping")
        for seconds, action in ((FINISH_S, tools.stopping.set), (EXIT_S, lambda: os._exit(0))):
            timer = threading.Timer(seconds, action)
            timer.daemon = True
            timer.start()

    worker_ready.connect(on_ready, weak=False)
    worker_shutting_down.connect(on_shutting_down, weak=False)
