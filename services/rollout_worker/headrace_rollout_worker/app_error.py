"""What a task app says of an inference that it could not use: the last step's `info.error`.

Released apps turn such an error into a reward and answer 200. The error is a text, or the object of an
HTTP error with codes inside. A number in a text is a status only where the text says so: "seat 503 is
taken" is no broken server. Knows no calls and no rewards.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headrace_rollout_worker.rewards import steps_of

MAX_TEXT = 500
_STATUS_KEYS = ("code", "status", "status_code", "http_status")
_NOT_THE_POLICYS = (408, 429)
"""Statuses below 500 that say nothing against the request."""
_OVERFLOW = re.compile(r"context.?length|maximum context|too many tokens|context_length_exceeded", re.I)
_BROKEN = re.compile(
    r"""
      \btimed[ ]out\b | \btime-?out(?:error|exception)?\b | (?:connect|read|write|pool)timeout\b
    | \bconnection[ ](?:attempts?[ ]failed|refused|reset|aborted|closed|error|broken)
    | \bconnect(?:ion)?(?:refused|reset|aborted)?error\b | all[ ]connection[ ]attempts[ ]failed
    | \bcannot[ ]connect\b | \b(?:failed|unable)[ ]to[ ]connect\b
    | \bserver[ ]disconnected\b | \bremoteprotocolerror\b | \bread(?:error)\b | \breset[ ]by[ ]peer\b
    | \b(?:host|network)[ ](?:is[ ])?unreachable\b | \bname[ ]or[ ]service[ ]not[ ]known\b | \bgetaddrinfo\b
    | \bHTTP(?:/\d(?:\.\d)?)?[ ](?:error[ ])?5\d\d\b | \bserver[ ]error[ ]'5\d\d\b
    | \b(?:status|status[_ ]code|error[ ]code|code)['"]?[ ]?[:=]?[ ]?5\d\d\b
    | \b5\d\d:?[ ](?:internal[ ]server[ ]error|bad[ ]gateway|service[ ]unavailable|gateway[ ]time-?out)\b
    """,
    re.I | re.X,
)


@dataclass(frozen=True)
class AppError:
    """The error of an episode's last step."""

    text: str
    """Empty where the app names none: `str()` of a time-out is."""
    is_overflow: bool
    """It says that the prompt did not fit, which is the policy's doing."""
    is_broken: bool
    """It says that the inference failed: no connection, no answer in time, a status of 500 or above."""
    has_acted: bool
    """The step has an action, so the reply that led to it had come."""

    @property
    def told(self) -> str:
        return self.text or "an error without a text"


def app_error(answer: dict[str, Any]) -> AppError | None:
    """The error that the answer's last step reports; None where it reports none."""
    steps = steps_of(answer)
    info = steps[-1].get("info") if steps else None
    if not isinstance(info, dict) or info.get("error") in (None, False, {}, []):
        return None
    error = info["error"]
    statuses = [*_statuses(info), *_statuses(error)]
    text = str(error)[:MAX_TEXT]
    is_broken = any(status >= 500 or status in _NOT_THE_POLICYS for status in statuses)
    return AppError(
        text=text,
        is_overflow=bool(_OVERFLOW.search(text)),
        is_broken=is_broken or (isinstance(error, str) and bool(_BROKEN.search(text))),
        has_acted=bool(steps[-1].get("tool_calls")) or info.get("action") is not None,
    )


def _statuses(value: Any, depth: int = 5) -> Iterator[int]:
    """HTTP statuses under the usual keys of an error object, and of the objects in it."""
    if not isinstance(value, dict) or depth == 0:
        return
    for key in _STATUS_KEYS:
        status = value.get(key)
        if isinstance(status, int) and not isinstance(status, bool) and 100 <= status < 600:
            yield status
    for key in ("error", "body", "detail"):
        yield from _statuses(value.get(key), depth - 1)
