"""The one Celery task: validate, play, and give the order back when the worker stops."""

from __future__ import annotations

from typing import Any

from celery import Celery
from celery.exceptions import Reject
from pydantic import ValidationError

from headrace import log
from headrace.contracts.rollout import RolloutOrder
from headrace.queue import names
from headrace_rollout_worker.attempt import Tools
from headrace_rollout_worker.play import play
from headrace_rollout_worker.watch import WorkerStops


def register(app: Celery, tools: Tools) -> None:
    """Make `app` play rollout orders with `tools`."""

    @app.task(name=names.ROLLOUT_TASK)
    def rollout(payload: Any) -> None:
        try:
            order = RolloutOrder.model_validate(payload)
        except ValidationError as error:
            # Acknowledged: it would be as wrong the next time.
            problems = error.errors(include_url=False, include_input=False, include_context=False)
            log.get(__name__).error("order.invalid", problems=problems)
            return
        try:
            play(order, tools)
        except WorkerStops as stops:
            raise Reject(str(stops), requeue=True) from stops
