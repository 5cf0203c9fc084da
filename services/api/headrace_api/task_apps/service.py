"""Calling a task app with each stored key, and having it call the policy back.

`/health` may answer without a key, so `/task_info` decides.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import httpx

from headrace.contracts.task_app import TaskFacts, likely_cause, refusal
from headrace.errors import BadRequest
from headrace.task_app.client import Answer, BadAnswer, ask
from headrace_api.task_apps.views import KeyAttempt, PolicyCallback, Verification

TIMEOUT_S = 8.0
"""One request. A key takes two of them, and clients wait 60 s for the whole verification."""
TOTAL_S = 45.0
AT_ONCE = 16


@dataclass(frozen=True)
class _Tried:
    attempt: KeyAttempt
    key: str | None
    taskset: object = None
    """The JSON of `/task_info`, where the key opened it."""


def verify(task_url: str, keys: Sequence[str], policy_url: str) -> Verification:
    """One attempt per key, or one without a key where none is stored; keys never occur in the answer."""
    base = checked_address("endpoint_base_url", task_url)
    policy = checked_address("policy_url", policy_url)
    deadline = time.monotonic() + TOTAL_S
    with httpx.Client() as client, ThreadPoolExecutor(AT_ONCE) as pool:
        tried = list(pool.map(lambda key: _try(client, base, key, keys, deadline), keys or [None]))
        opened = next((one for one in tried if one.attempt.ok), None)
        if opened is None:
            callback = PolicyCallback(
                url=policy, is_reachable=None, detail="not tested, since no key opened the task app"
            )
        else:
            callback = _call_back(client, base, _with_first(opened.key, keys), policy)
    return Verification(
        any_ok=opened is not None,
        candidates_first15=len(keys),
        attempts=[one.attempt for one in tried],
        task_info=None if opened is None else _facts(base, opened, keys),
        policy_callback=callback,
    )


def checked_address(name: str, text: str) -> str:
    """An http(s) address without its last slash; raises BadRequest that names the key otherwise."""
    try:
        url = httpx.URL(text.strip())
        is_address = url.scheme in ("http", "https") and bool(url.host)
    except httpx.InvalidURL:
        is_address = False
    if not is_address:
        raise BadRequest(f"{name} = {text!r} is not an http(s) address")
    return text.strip().rstrip("/")


def _try(client: httpx.Client, base: str, key: str | None, keys: Sequence[str], deadline: float) -> _Tried:
    """`/health` and `/task_info` with one key alone, so that the answer is about this key."""
    alone = [key] if key is not None else []
    shown = None if key is None else f"{key[: min(4, len(key) // 2)]}..."
    attempt = KeyAttempt(ok=False, status=0, path="/health", key_prefix=shown)
    answer: Answer | None = None
    for path in ("/health", "/task_info"):
        if time.monotonic() > deadline:
            return _Tried(
                _failed(attempt, 0, path, f"not tried: {TOTAL_S:g} s were over before its turn"), key
            )
        try:
            answer = ask(client, "GET", f"{base}{path}", alone, timeout_s=TIMEOUT_S)
        except BadAnswer as error:
            return _Tried(_failed(attempt, 0, path, error.message), key)
        except (httpx.HTTPError, UnicodeError) as error:
            sentence = f"{base} does not answer: {error or type(error).__name__}"
            return _Tried(_failed(attempt, 0, path, sentence, _unreachable(base, error)), key)
        if answer.status != 200:
            cause = likely_cause(answer.status, answer.text)
            if not keys and cause is not None and answer.status in (400, 401, 403):
                cause = "no environment key is stored; store it with `headrace keys upload-env`"
            return _Tried(_failed(attempt, answer.status, path, _said(path, answer, keys), cause), key)
    assert answer is not None
    try:
        taskset = answer.json()
    except ValueError:
        taskset = None
    if not isinstance(taskset, dict):
        sentence = f"{base}/task_info did not answer with a JSON object"
        cause = "another service answers at this address"
        return _Tried(_failed(attempt, 200, "/task_info", sentence, cause), key)
    return _Tried(attempt.model_copy(update={"ok": True, "status": 200, "path": "/task_info"}), key, taskset)


def _said(path: str, answer: Answer, keys: Sequence[str]) -> str:
    return f"{path}: {refusal(answer.status, answer.text, keys)}"


def _failed(attempt: KeyAttempt, status: int, path: str, error: str, cause: str | None = None) -> KeyAttempt:
    return attempt.model_copy(update={"status": status, "path": path, "error": error, "cause": cause})


def _unreachable(base: str, error: Exception) -> str:
    """Why the API could not reach an address, as far as the error tells."""
    if isinstance(error, httpx.TimeoutException):
        return "the task app is busy, or a firewall between it and the API drops the connection"
    if isinstance(error, httpx.ConnectError):
        host = httpx.URL(base).host
        if host in ("localhost", "127.0.0.1", "::1"):
            return f"no task app is running there; {host} is the API's own machine"
        return "no task app is running there, or the API's machine cannot reach that host"
    return "what answers at this address speaks no HTTP"


def _with_first(key: str | None, keys: Sequence[str]) -> list[str]:
    """All keys, the one that opened the app as the primary."""
    return [] if key is None else [key, *(other for other in keys if other != key)]


def _facts(base: str, opened: _Tried, keys: Sequence[str]) -> TaskFacts:
    """What the app tells of itself, with the TaskInfo of one seed where it gives one."""
    facts = TaskFacts.parse(opened.taskset)
    seed = facts.seed_range[0] if facts.seed_range else 0
    url = f"{base}/task_info?seed={seed}"
    try:
        with httpx.Client() as client:
            answer = ask(client, "GET", url, _with_first(opened.key, keys), timeout_s=TIMEOUT_S)
        return TaskFacts.parse(opened.taskset, answer.json()) if answer.status == 200 else facts
    except (BadAnswer, httpx.HTTPError, ValueError):
        return facts  # rubrics and limits only help a person choose


def _call_back(client: httpx.Client, base: str, keys: Sequence[str], policy: str) -> PolicyCallback:
    """Have the task app call the policy, since that is what each of its episodes will do."""

    def found(is_reachable: bool | None, detail: str) -> PolicyCallback:
        return PolicyCallback(url=policy, is_reachable=is_reachable, detail=detail)

    try:
        answer = ask(client, "POST", f"{base}/reach", keys, timeout_s=TIMEOUT_S, json_body={"url": policy})
        told = answer.json() if answer.status == 200 else None
    except (BadAnswer, httpx.HTTPError, ValueError) as error:
        return found(None, f"not tested: POST {base}/reach gave {error or type(error).__name__}")
    if answer.status in (404, 405):
        return found(
            None, "not tested, since this task app has no route /reach (task apps of the SDK have it)"
        )
    if not isinstance(told, dict):
        return found(None, f"not tested: POST {base}/reach answered {answer.status} and no JSON object")
    if told.get("status") == 200:
        return found(True, f"the task app at {base} reaches the policy at {policy}")
    why = told.get("error") or f"{policy}/health answered it with {told.get('status')}"
    return found(
        False,
        f"the task app at {base} cannot reach the policy at {policy}: {str(why)[:200]}; set "
        "HEADRACE_POLICY_PUBLIC_URL to an address that the task app's machine can reach",
    )
