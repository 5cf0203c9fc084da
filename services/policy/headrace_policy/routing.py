"""Which session a request belongs to, and whether it may go on. Pure."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from headrace.contracts.policy import SessionOpen
from headrace.errors import Conflict, Forbidden, Gone, NotFound, StaleTimeline, Unauthorized

CHAT, MODELS = "chat/completions", "models"
_ID_PARAMETERS = ("cid", "trace_correlation_id", "trace")


class Role(StrEnum):
    """Who calls an internal route."""

    WORKER = "worker"
    """May open and end sessions."""
    TRAINER = "trainer"
    """May also publish and probe."""


def route_of(path: str, query: Mapping[str, str]) -> str | None:
    """The known route that a lenient URL means: its path's end, else the end of a glued query.

    Some task apps append `/v1/chat/completions` to a URL that already ends in `?cid=...`.
    """
    for text in (path, *(query[name] for name in _ID_PARAMETERS if name in query)):
        for route in (CHAT, MODELS):
            if text.rstrip("/").endswith(f"/{route}"):
                return route
    return None


def session_id_of(path: str, query: Mapping[str, str]) -> str | None:
    """The session id in `/rollout/<id>/...`, else in `?cid=`, there cut at the first slash.

    >>> session_id_of("/v1/chat/completions", {"cid": "trace_1/v1/chat/completions"})
    'trace_1'
    """
    parts = path.strip("/").split("/")
    if len(parts) > 1 and parts[0] == "rollout" and parts[1]:
        return parts[1]
    for name in _ID_PARAMETERS:
        if value := query.get(name, "").partition("/")[0]:
            return value
    return None


@dataclass(frozen=True)
class SessionFacts:
    """What Redis holds of a session when a request for it arrives."""

    opened: SessionOpen | None
    is_ended: bool
    current_timeline: int | None


def admit(session_id: str, facts: SessionFacts, serve_id: str | None) -> SessionOpen:
    """The session, or the reason why a call for it is refused."""
    if facts.opened is None:
        raise NotFound(f"session {session_id[:12]}... is unknown: it was never opened, or has expired")
    if facts.is_ended:
        raise Gone(f"session {session_id[:12]}... has ended; its rollout takes no more calls")
    check_current(facts.opened, facts.current_timeline, serve_id)
    return facts.opened


def check_current(opened: SessionOpen, current_timeline: int | None, serve_id: str | None) -> None:
    """Raise StaleTimeline or Conflict when the session belongs to an older owner or other weights."""
    if opened.timeline != current_timeline:
        raise StaleTimeline(
            f"job {opened.job_id} is on timeline {current_timeline}, this session belongs to {opened.timeline}"
        )
    if serve_id is not None and opened.serve_id != serve_id:
        raise Conflict(f"the policy serves {serve_id}, this session was opened for {opened.serve_id}")


def role_of(authorization: str | None, worker_token: str, trainer_token: str) -> Role:
    """Whose token an `Authorization: Bearer` header carries."""
    token = (authorization or "").removeprefix("Bearer ").strip()
    for role, expected in ((Role.TRAINER, trainer_token), (Role.WORKER, worker_token)):
        if expected and hmac.compare_digest(token.encode(), expected.encode()):
            return role
    raise Unauthorized("this route needs the worker's or trainer's internal token as a bearer token")


def require_trainer(role: Role) -> None:
    if role is not Role.TRAINER:
        raise Forbidden("a worker's token may not publish or probe; use HEADRACE_TRAINER_TOKEN")
