from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fakes.trajectories import VERSION, make_call, make_trajectory

from headrace.contracts.base import logprobs, token_ids
from headrace.contracts.policy import CallError, PolicyVersion, VersionSpan
from headrace.errors import DataError
from headrace.rl.sequences import NOT_SAMPLED, Sequence, sequences_of

NEWER = PolicyVersion(timeline=1, n=1)


def test_a_continued_call_extends_its_row_and_only_sampled_tokens_are_masked_in() -> None:
    (row,) = sequences_of(make_trajectory(make_call(0, [1, 2], [3, 4]), make_call(1, [5], [6, 7], parent=0)))
    assert list(row.token_ids) == [1, 2, 3, 4, 5, 6, 7]
    assert list(row.mask) == [0, 0, 1, 1, 0, 1, 1]
    assert list(row.behaviour_logprobs) == [0, 0, -1.0, -1.1, 0, -2.0, -2.1]
    assert row.call_of_token == (NOT_SAMPLED, NOT_SAMPLED, 0, 0, NOT_SAMPLED, 1, 1)
    assert [(span.start, span.end) for span in row.version_spans] == [(2, 4), (5, 7)]


def test_a_fork_shares_the_prefix_as_context_and_trains_each_token_once() -> None:
    first, second = sequences_of(
        make_trajectory(
            make_call(0, [1], [2, 3]), make_call(1, [4], [5], parent=0), make_call(2, [6], [7], parent=0)
        )
    )
    assert (list(first.token_ids), list(first.mask)) == ([1, 2, 3, 4, 5], [0, 1, 1, 0, 1])
    assert (list(second.token_ids), list(second.mask)) == ([1, 2, 3, 6, 7], [0, 0, 0, 0, 1])
    assert list(second.behaviour_logprobs) == [0, 0, 0, 0, -3.0]


def test_interleaved_sub_agents_keep_a_row_each() -> None:
    rows = sequences_of(
        make_trajectory(
            make_call(0, [1], [2]),
            make_call(1, [9], [8]),
            make_call(2, [3], [4], parent=0),
            make_call(3, [7], [6], parent=1),
        )
    )
    assert [list(row.token_ids) for row in rows] == [[1, 2, 3, 4], [9, 8, 7, 6]]
    assert [list(row.mask) for row in rows] == [[0, 1, 0, 1], [0, 1, 0, 1]]


def test_an_untrainable_call_is_context_of_what_follows_it() -> None:
    (row,) = sequences_of(
        make_trajectory(make_call(0, [1], [2, 3], is_trainable=False), make_call(1, [4], [5], parent=0))
    )
    assert (list(row.token_ids), list(row.mask)) == ([1, 2, 3, 4, 5], [0, 0, 0, 0, 1])
    assert list(row.behaviour_logprobs) == [0, 0, 0, 0, -2.0]


def test_an_untrainable_leaf_takes_no_part_so_that_its_sibling_extends_the_row() -> None:
    (row,) = sequences_of(
        make_trajectory(
            make_call(0, [1], [2]),
            make_call(1, [3], [4], parent=0, is_trainable=False),
            make_call(2, [3], [5], parent=0),
        )
    )
    assert (list(row.token_ids), list(row.mask)) == ([1, 2, 3, 5], [0, 1, 0, 1])


def test_a_call_that_ended_in_an_error_is_left_out() -> None:
    error = CallError(status=500, code="engine", message="gone", is_policy_fault=False)
    (row,) = sequences_of(
        make_trajectory(make_call(0, [1], [2]), make_call(1, [3], [], parent=0, error=error))
    )
    assert list(row.token_ids) == [1, 2]


def test_a_trajectory_without_trainable_tokens_gives_no_rows() -> None:
    assert sequences_of(make_trajectory()) == []
    assert sequences_of(make_trajectory(make_call(0, [1], [2], is_trainable=False))) == []


def test_a_call_at_another_temperature_gets_a_row_of_its_own() -> None:
    rows = sequences_of(
        make_trajectory(make_call(0, [1], [2]), make_call(1, [3], [4], parent=0, temperature=0.5))
    )
    assert [(row.temperature, list(row.mask)) for row in rows] == [(1.0, [0, 1]), (0.5, [0, 0, 0, 1])]


def test_versions_inside_a_reply_are_kept_at_their_place_in_the_row() -> None:
    spans = (VersionSpan(version=VERSION, start=0, end=1), VersionSpan(version=NEWER, start=1, end=3))
    (row,) = sequences_of(make_trajectory(make_call(0, [1, 1], [2, 3, 4], version_spans=spans)))
    assert [(span.start, span.end, span.version.n) for span in row.version_spans] == [(2, 3, 0), (3, 5, 1)]
    assert (row.min_version, row.max_version) == (VERSION, NEWER)


@pytest.mark.parametrize("value", [math.nan, -math.inf, 0.5])
def test_a_logprob_that_is_none_names_the_rollout(value: float) -> None:
    call = make_call(0, [1], [2], sampled_logprobs=logprobs([value]))
    with pytest.raises(DataError, match=r"job_1\.train\.i0\.g0\.m0.*logprob"):
        sequences_of(make_trajectory(call))


def test_a_reply_without_a_prompt_is_refused() -> None:
    with pytest.raises(DataError, match="no token precedes it"):
        sequences_of(make_trajectory(make_call(0, [], [2])))


def test_a_call_that_continues_an_unknown_one_is_refused() -> None:
    with pytest.raises(DataError, match="call 1 continues call 5"):
        sequences_of(make_trajectory(make_call(0, [1], [2]), make_call(1, [3], [4], parent=5)))


def test_greedy_tokens_are_refused_since_no_distribution_drew_them() -> None:
    with pytest.raises(DataError, match="temperature"):
        sequences_of(make_trajectory(make_call(0, [1], [2], temperature=0.0)))


GOOD: dict[str, Any] = {
    "rollout_id": "r",
    "session_id": "s",
    "token_ids": token_ids([1, 2, 3]),
    "mask": b"\0\1\1",
    "behaviour_logprobs": logprobs([0, -1, -2]),
    "temperature": 1.0,
    "version_spans": (VersionSpan(version=VERSION, start=1, end=3),),
    "call_of_token": (NOT_SAMPLED, 0, 0),
}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"mask": b"\0\1"}, "3 tokens but 2 mask entries"),
        ({"behaviour_logprobs": logprobs([0, -1])}, "2 logprobs"),
        ({"mask": b"\0\0\0"}, "marks no token"),
        ({"mask": b"\0\2\1"}, "other values"),
        ({"mask": b"\1\1\1"}, "first token"),
        ({"mask": b"\0\1\0"}, "token 2 was not sampled but has the logprob"),
        ({"mask": b"\0\1\0", "behaviour_logprobs": logprobs([0, -1, 0])}, "version spans"),
        ({"call_of_token": (NOT_SAMPLED, 0, NOT_SAMPLED)}, "token 2 has mask 1 but call index"),
        ({"token_ids": token_ids([1, -2, 3])}, "negative"),
        ({"version_spans": ()}, "version spans"),
    ],
)
def test_columns_that_contradict_each_other_cannot_become_a_sequence(
    change: dict[str, Any], sentence: str
) -> None:
    Sequence(**GOOD)
    with pytest.raises(DataError, match=sentence):
        Sequence(**GOOD | change)


@st.composite
def sessions(draw: st.DrawFn) -> list[Any]:
    calls = []
    for index in range(draw(st.integers(1, 7))):
        parent = draw(st.none() | st.integers(0, index - 1)) if index else None
        sampled = draw(st.lists(st.integers(0, 50), max_size=3))
        calls.append(
            make_call(
                index,
                draw(st.lists(st.integers(0, 50), min_size=1, max_size=3)),
                sampled,
                parent=parent,
                is_trainable=draw(st.booleans()),
            )
        )
    return calls


@settings(max_examples=200, deadline=None)
@given(sessions())
def test_each_sampled_token_of_any_session_is_trained_once_behind_its_own_context(calls: list[Any]) -> None:
    seen: dict[int, list[tuple[int, float]]] = {}
    for row in sequences_of(make_trajectory(*calls)):
        for position, call in enumerate(row.call_of_token):
            if call != NOT_SAMPLED:
                entry = (row.token_ids[position], row.behaviour_logprobs[position])
                seen.setdefault(call, []).append(entry)
        for call in {index for index in row.call_of_token if index != NOT_SAMPLED}:
            start = row.call_of_token.index(call)
            assert list(row.token_ids[:start]) == _prompt(calls, call)
    expected = {
        call.index: list(zip(call.sampled_ids, call.sampled_logprobs, strict=True))
        for call in calls
        if call.is_trainable and len(call.sampled_ids)
    }
    assert seen == expected


def _prompt(calls: list[Any], index: int) -> list[int]:
    call = calls[index]
    before = [] if call.parent is None else [*_prompt(calls, call.parent), *calls[call.parent].sampled_ids]
    return [*before, *call.new_prompt_ids]
