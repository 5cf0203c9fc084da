"""Which session a lenient URL means, and who may do what."""

from __future__ import annotations

import pytest

from headrace.contracts.policy import Sampling, SessionOpen
from headrace.errors import Conflict, Forbidden, Gone, NotFound, StaleTimeline, Unauthorized
from headrace_policy.routing import (
    CHAT,
    MODELS,
    Role,
    SessionFacts,
    admit,
    require_trainer,
    role_of,
    route_of,
    session_id_of,
)

OPENED = SessionOpen(
    session_id="trace_a", job_id="job_1", rollout_id="r", attempt=1, timeline=3, serve_id="serve_1",
    mode="rl", sampling=Sampling(), ttl_s=60,
)  # fmt: skip


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/rollout/trace_a/v1/chat/completions", {}),
        ("/rollout/trace_a/v1/chat/completions/", {}),
        ("/rollout/trace_a/v1/v1/chat/completions", {}),
        ("/rollout/trace_a/v1/chat/completions/v1/chat/completions", {}),
        ("/rollout/trace_a/v1/chat/completions", {"cid": "trace_b"}),
        ("/v1/chat/completions", {"cid": "trace_a"}),
        ("/v1/chat/completions", {"cid": "trace_a/v1/chat/completions"}),
        ("/v1", {"cid": "trace_a/v1/chat/completions"}),
        ("/chat/completions", {"trace_correlation_id": "trace_a"}),
        ("/v1/v1/chat/completions", {"trace": "trace_a"}),
    ],
)
def test_every_url_that_task_apps_make_of_ours_finds_the_session(path: str, query: dict[str, str]):
    assert session_id_of(path, query) == "trace_a"
    assert route_of(path, query) == CHAT


def test_other_urls_mean_nothing():
    assert session_id_of("/v1/chat/completions", {}) is None
    assert session_id_of("/v1/chat/completions", {"cid": "/v1"}) is None
    assert session_id_of("/rollout", {}) is None
    assert route_of("/rollout/trace_a/v1/embeddings", {}) is None
    assert route_of("/rollout/trace_a/v1/models", {}) == MODELS


@pytest.mark.parametrize(
    ("facts", "serve_id", "error"),
    [
        (SessionFacts(None, False, None), "serve_1", NotFound),
        (SessionFacts(OPENED, True, 3), "serve_1", Gone),
        (SessionFacts(OPENED, False, 4), "serve_1", StaleTimeline),
        (SessionFacts(OPENED, False, None), "serve_1", StaleTimeline),
        (SessionFacts(OPENED, False, 3), "serve_2", Conflict),
    ],
)
def test_calls_outside_a_current_session_are_refused(
    facts: SessionFacts, serve_id: str, error: type[Exception]
):
    with pytest.raises(error) as caught:
        admit("trace_a", facts, serve_id)
    assert type(caught.value) is error


def test_a_current_session_is_admitted():
    assert admit("trace_a", SessionFacts(OPENED, False, 3), "serve_1") == OPENED
    assert admit("trace_a", SessionFacts(OPENED, False, 3), None) == OPENED


def test_tokens_have_roles():
    assert role_of("Bearer w", "w", "t") is Role.WORKER
    assert role_of("Bearer t", "w", "t") is Role.TRAINER
    require_trainer(Role.TRAINER)
    with pytest.raises(Forbidden):
        require_trainer(Role.WORKER)


@pytest.mark.parametrize("header", [None, "", "Bearer ", "Bearer x", "Bearer é"])
def test_a_wrong_or_missing_token_is_nobody(header: str | None):
    with pytest.raises(Unauthorized):
        role_of(header, "w", "t")
    with pytest.raises(Unauthorized):
        role_of(header, "", "")
