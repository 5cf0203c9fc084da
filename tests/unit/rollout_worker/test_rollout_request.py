"""What a worker sends to task apps, by the rules of the released ones (Crafter's are the strictest)."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest
from tests.unit.rollout_worker.test_join import ORDER

from headrace import ids
from headrace.contracts.task_app import auth_headers
from headrace_rollout_worker.task_app import AppManner, inference_url, rollout_request

SESSION = ids.new_session_id()
PATH = f"/rollout/{SESSION}/v1"


def url(form: str | None = None, wants_query: bool = False) -> str:
    order = ORDER.model_copy(update={"inference_url_form": form, "policy_public_url": "http://policy:1/"})
    return inference_url(order, PATH, SESSION, AppManner(wants_query_form=wants_query))


@pytest.mark.parametrize(
    ("form", "wants_query", "is_query"),
    [(None, False, False), (None, True, True), ("path", True, False), ("query", False, True)],
)
def test_the_job_decides_where_the_id_stands_and_else_the_app(form, wants_query, is_query):
    given = url(form, wants_query)
    if is_query:
        assert given == f"http://policy:1/v1/chat/completions?cid={SESSION}"
        assert parse_qs(urlsplit(given).query) == {"cid": [SESSION]}
    else:
        assert given == f"http://policy:1/rollout/{SESSION}/v1"


def test_the_correlation_id_has_the_prefix_that_crafter_asserts_and_is_the_run_id():
    request = rollout_request(ORDER, SESSION, url())
    assert SESSION.startswith("trace_")
    assert request["run_id"] == request["policy"]["config"]["trace_correlation_id"] == SESSION


def test_the_request_fits_apps_of_every_version():
    request = rollout_request(ORDER, SESSION, url())
    assert request["mode"] == "rl"  # required since 0.2.14
    assert request["record"]["trace_format"] in ("compact", "full")
    assert "policy_id" not in request["policy"]  # Crafter takes it for an existing handle
    assert request["policy"]["config"]["model"] == ORDER.model


def test_each_header_of_the_contract_has_the_keys():
    assert auth_headers(["new-key", "old-key"]) == {
        "X-API-Key": "new-key",
        "X-API-Keys": "new-key,old-key",
        "Authorization": "Bearer new-key",
    }
