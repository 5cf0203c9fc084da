"""The worker's side of a task app: one POST plays the episode; its answer is parsed defensively."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import httpx

from headrace.contracts.rollout import RolloutOrder
from headrace.contracts.task_app import auth_headers, refusal
from headrace.contracts.trajectory import TaskAppIdentity
from headrace_rollout_worker.http import Answer, AnswerTooLarge, WatchedClient
from headrace_rollout_worker.watch import DeadlinePassed, Watch

MANNER_TTL_S = 60.0
MANNER_WAIT_S = 5.0
MAX_DEPTH = 150
"""Nesting of an answer; JSON readers down the line stop at 200, and some of it is nested deeper there."""


class TaskAppFailed(Exception):
    """The task app gave no usable answer; `str(error)` is the reason, one sentence."""


@dataclass(frozen=True)
class AppManner:
    """What `/task_info` tells a worker; the defaults where the app does not tell."""

    identity: TaskAppIdentity = field(default_factory=TaskAppIdentity)
    wants_query_form: bool = False
    """It asks for `?cid=` in the inference URL: `inference.inference_url_form = "query"`."""


def inference_url(order: RolloutOrder, path: str, session_id: str, manner: AppManner) -> str:
    """The URL under which the task app reaches the policy for this attempt, and no other.

    `path` is the session's path at the gateway. The id in it is the only credential.
    """
    base = order.policy_public_url.rstrip("/")
    form = order.inference_url_form or ("query" if manner.wants_query_form else "path")
    return f"{base}/v1/chat/completions?cid={session_id}" if form == "query" else f"{base}{path}"


def rollout_request(order: RolloutOrder, session_id: str, inference_url: str) -> dict[str, Any]:
    """The contract's request in the form that apps of all its versions take (no `policy_id`)."""
    policy_config: dict[str, Any] = {
        **order.policy_config,
        "model": order.model,
        "inference_url": inference_url,
        "trace_correlation_id": session_id,
        "temperature": order.sampling.temperature,
    }
    if order.sampling.max_tokens is not None:
        policy_config["max_tokens"] = order.sampling.max_tokens
    return {
        "run_id": session_id,
        "env": {"env_name": order.env_name, "seed": order.seed, "config": order.env_config},
        "policy": {"policy_name": order.policy_name, "config": policy_config},
        "ops": list(order.ops),
        "record": {
            "trajectories": True,
            "logprobs": False,
            "value": False,
            "return_trace": order.record_trace,
            "trace_format": "compact",
        },
        "on_done": "terminate",
        "safety": {"max_ops": len(order.ops), "max_time_s": order.deadline_s},
        "training_session_id": order.job_id,
        "mode": order.mode,
    }


class TaskAppClient:
    def __init__(self, http: WatchedClient, task_url: str, keys: list[str]) -> None:
        self._http, self._base, self._keys = http, task_url.rstrip("/"), keys

    def rollout(self, request: dict[str, Any], watch: Watch) -> dict[str, Any]:
        """Play the episode; raises TaskAppFailed (never a reward), or a Stopped other than the deadline.

        It is sent once: an app that has begun an episode must not be made to play it twice.
        """
        try:
            answer = self._http.send(
                watch, "POST", f"{self._base}/rollout", headers=auth_headers(self._keys), json=request
            )
        except DeadlinePassed as late:
            raise TaskAppFailed(f"the task app did not answer in time: {late}") from late
        except httpx.InvalidURL as error:
            raise TaskAppFailed(f"the task app's URL {self._base!r} is no URL: {error}") from error
        except httpx.HTTPError as error:
            text = f"{type(error).__name__} {error}".rstrip()
            raise TaskAppFailed(f"the task app at {self._base} could not be reached: {text}") from error
        except AnswerTooLarge as error:
            raise TaskAppFailed(f"the task app's answer: {error}") from error
        if answer.status != 200:
            text = answer.body[:2000].decode(errors="replace")
            raise TaskAppFailed(refusal(answer.status, text, self._keys))
        parsed = _parse(answer)
        echoed = parsed.get("run_id")
        if echoed != request["run_id"]:
            raise TaskAppFailed(
                f"the task app answered for run_id {str(echoed)[:80]!r}, asked was {request['run_id']!r}"
            )
        return parsed

    def manner(self, seed: int) -> AppManner:
        """Task id, version and wishes from `/task_info`."""
        try:
            answer = self._http.send(
                Watch(MANNER_WAIT_S), "GET", f"{self._base}/task_info?seed={seed}",
                headers=auth_headers(self._keys),
            )  # fmt: skip
            info = json.loads(answer.body)
            task, inference = info["task"], info.get("inference")
            identity = TaskAppIdentity(task_id=_text(task.get("id")), version=_text(task.get("version")))
            asked = inference.get("inference_url_form") if isinstance(inference, dict) else None
            return AppManner(identity, wants_query_form=asked == "query")
        except (httpx.HTTPError, httpx.InvalidURL, DeadlinePassed, AnswerTooLarge):
            return AppManner()
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return AppManner()


class Manners:
    """Manners of task apps, each asked for once a minute and not once per rollout."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, AppManner]] = {}

    def get(self, task_url: str, client: TaskAppClient, seed: int) -> AppManner:
        with self._lock:
            at, manner = self._known.get(task_url, (0.0, AppManner()))
            if at and time.monotonic() - at < MANNER_TTL_S:
                return manner
            if at:  # one thread asks again, the others go on with what was known
                self._known[task_url] = (time.monotonic(), manner)
        manner = client.manner(seed)
        with self._lock:
            self._known[task_url] = (time.monotonic(), manner)
        return manner


def _parse(answer: Answer) -> dict[str, Any]:
    try:
        parsed = json.loads(answer.body)
        json.dumps(parsed, ensure_ascii=False).encode()
    except UnicodeError as error:
        raise TaskAppFailed(f"the task app's answer holds text that is not Unicode: {error}") from error
    except (ValueError, RecursionError) as error:
        raise TaskAppFailed(f"the task app's answer is not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise TaskAppFailed(f"the task app's answer is a JSON {type(parsed).__name__}, not an object")
    if _is_too_deep(parsed):
        raise TaskAppFailed(f"the task app's answer cannot be kept: it nests deeper than {MAX_DEPTH}")
    return parsed


def _is_too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        children = (v.values() if isinstance(v, dict) else v for v in level)
        level = [child for some in children for child in some if isinstance(child, dict | list)]
    return bool(level)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)[:200]
