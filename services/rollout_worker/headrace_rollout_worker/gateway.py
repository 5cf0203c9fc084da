"""The worker's side of the policy gateway: a session per attempt, opened and ended."""

from __future__ import annotations

import json

import httpx
from pydantic import ValidationError

from headrace.contracts.policy import CapturedSession, SessionOpen
from headrace.contracts.rollout import RolloutOrder
from headrace_rollout_worker.http import Answer, AnswerTooLarge, WatchedClient
from headrace_rollout_worker.watch import Cancelled, DeadlinePassed, Watch

END_S = 15.0
"""Time for ending a session, whatever is left of the rollout's own."""
TTL_MARGIN_S = 120.0


class GatewayFailed(Exception):
    """The gateway did not do what was asked; `str(error)` is the reason, one sentence."""


class Gateway:
    def __init__(self, http: WatchedClient, order: RolloutOrder, token: str) -> None:
        self._http, self._order = http, order
        self._base = order.policy_url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"}

    def open_session(self, session_id: str, watch: Watch) -> str:
        """Open the session and return its path; waits while the engine is not ready.

        Opening the same id again is harmless, so a lost answer is asked for again. Raises
        GatewayFailed, or Cancelled when a newer timeline has taken over.
        """
        order = self._order
        body = SessionOpen(
            session_id=session_id, job_id=order.job_id, rollout_id=order.rollout_id, attempt=order.attempt,
            timeline=order.timeline, serve_id=order.serve_id, mode=order.mode, sampling=order.sampling,
            ttl_s=order.deadline_s + TTL_MARGIN_S,
        ).model_dump(mode="json")  # fmt: skip
        waited_for = "no answer yet"
        try:
            while True:
                try:
                    answer = self._http.send(
                        watch, "POST", f"{self._base}/sessions", headers=self._headers, json=body
                    )
                except httpx.TransportError as error:
                    waited_for = f"{type(error).__name__} {error}".rstrip()
                    watch.pause(0.5)
                    continue
                if answer.status != 503:
                    return self._path(answer)
                waited_for = f"503 {_message(answer)}"
                watch.pause(_retry_after_s(answer))
        except DeadlinePassed as late:
            raise GatewayFailed(f"the policy gateway opened no session in time: {waited_for}") from late
        except (httpx.InvalidURL, AnswerTooLarge) as error:
            raise GatewayFailed(f"the policy gateway at {self._base}: {error}") from error

    def end_session(self, session_id: str) -> CapturedSession:
        """End the session and return its calls; ending is idempotent, so it is tried again on a reset."""
        watch = Watch(END_S)
        url = f"{self._base}/sessions/{session_id}/end"
        try:
            while True:
                try:
                    answer = self._http.send(watch, "POST", url, headers=self._headers)
                except httpx.TransportError:
                    watch.pause(0.5)
                    continue
                if answer.status == 503:
                    watch.pause(_retry_after_s(answer))
                    continue
                break
        except DeadlinePassed as late:
            raise GatewayFailed(f"the policy gateway did not end the session within {END_S:g} s") from late
        except (httpx.InvalidURL, AnswerTooLarge) as error:
            raise GatewayFailed(f"the policy gateway at {self._base}: {error}") from error
        if answer.status != 200:
            raise GatewayFailed(
                f"the gateway answered {answer.status} to the session's end: {_message(answer)}"
            )
        try:
            return CapturedSession.model_validate_json(answer.body)
        except ValidationError as error:
            raise GatewayFailed(f"the gateway's captured session is not one: {error}") from error

    @staticmethod
    def _path(answer: Answer) -> str:
        if answer.status in (200, 201):
            try:
                path = json.loads(answer.body)["path"]
                if isinstance(path, str):
                    return path
            except (ValueError, LookupError, TypeError):
                pass
            raise GatewayFailed("the policy gateway opened a session without a path")
        if _code(answer) == "stale_timeline":
            raise Cancelled("a newer timeline of the job has taken over")
        if answer.status == 401:
            raise GatewayFailed(
                "the policy gateway refused the worker's token; HEADRACE_WORKER_TOKEN differs"
            )
        raise GatewayFailed(f"the gateway answered {answer.status} to a new session: {_message(answer)}")


def _error(answer: Answer) -> dict[str, object]:
    try:
        error = json.loads(answer.body)["error"]
    except (ValueError, LookupError, TypeError):
        return {}
    return error if isinstance(error, dict) else {}


def _code(answer: Answer) -> str:
    return str(_error(answer).get("code", ""))


def _message(answer: Answer) -> str:
    return str(_error(answer).get("message") or answer.body[:200].decode(errors="replace"))


def _retry_after_s(answer: Answer) -> float:
    text = answer.headers.get("retry-after", "")
    return min(max(float(text), 0.1), 2.0) if text.replace(".", "", 1).isdigit() else 0.5
