"""Version spans are exact or the call has failed; only the present owner changes weights."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.contracts.policy import PolicyVersion, ServeSpec
from headrace.errors import Conflict, StaleTimeline, Unavailable
from headrace_policy.versions import can_swap_in_place, check_fence, is_same_state, spans_of


def spec(**changes: Any) -> ServeSpec:
    base: dict[str, Any] = {
        "serve_id": "serve_1", "job_id": "job_1", "model_path": "/m/1", "architecture_hash": "a",
        "max_model_len": 64, "version": PolicyVersion(timeline=1, n=0), "fence": 5,
    }  # fmt: skip
    return ServeSpec(**(base | changes))


def test_spans_of_a_swap_in_flight_keep_both_versions():
    raw = [{"version": "1.0", "start": 0, "end": 3}, {"version": "1.1", "start": 3, "end": 5}]
    spans = spans_of(raw, 5)
    assert [(str(span.version), span.start, span.end) for span in spans] == [("1.0", 0, 3), ("1.1", 3, 5)]


@pytest.mark.parametrize(
    ("raw", "n_tokens"),
    [
        (None, 1),
        ([], 1),
        ([{"version": "1.0", "start": 0, "end": 2}], 3),
        ([{"version": "1.0", "start": 1, "end": 3}], 3),
        ([{"version": "1.0", "start": 0, "end": 2}, {"version": "1.1", "start": 1, "end": 3}], 3),
        ([{"version": "default", "start": 0, "end": 3}], 3),
        ([{"version": None, "start": 0, "end": 3}], 3),
        ([{"start": 0, "end": None}], 3),
    ],
)
def test_spans_that_do_not_tile_or_name_a_version_are_an_engine_error(raw: Any, n_tokens: int):
    with pytest.raises(Unavailable):
        spans_of(raw, n_tokens)


def test_only_the_present_owner_passes_the_fence():
    assert check_fence(spec(), "serve_1", 5) == spec()
    with pytest.raises(StaleTimeline):
        check_fence(spec(), "serve_1", 4)
    with pytest.raises(StaleTimeline):
        check_fence(spec(), "serve_1", 6)
    with pytest.raises(Conflict):
        check_fence(spec(), "serve_2", 5)
    with pytest.raises(Conflict):
        check_fence(None, "serve_1", 5)


@pytest.mark.parametrize(
    ("changes", "in_place", "same"),
    [
        ({"fence": 6, "job_id": "job_2"}, True, True),
        ({"version": PolicyVersion(timeline=2, n=0)}, True, False),
        ({"model_path": "/m/2"}, True, False),
        ({"serve_id": "serve_2"}, True, False),
        ({"architecture_hash": "b"}, False, False),
        ({"max_model_len": 128}, False, False),
        ({"engine_args": ("--x",)}, False, False),
        ({"dtype": "bfloat16"}, False, False),
    ],
)
def test_weights_alone_are_swapped_in_place(changes: dict[str, Any], in_place: bool, same: bool):
    assert can_swap_in_place(spec(), spec(**changes)) == in_place
    assert is_same_state(spec(), spec(**changes)) == same
