from __future__ import annotations

import pytest

from headrace.contracts.policy import PolicyVersion
from headrace.errors import DataError
from headrace.rl.staleness import PolicyHistory


def version(timeline: int, n: int) -> PolicyVersion:
    return PolicyVersion(timeline=timeline, n=n)


FORKED = PolicyHistory(((1, 0, 3), (2, 3, 5), (4, 6, 6)))


def test_a_version_of_an_abandoned_branch_is_no_ancestor() -> None:
    assert FORKED.contains(version(1, 3))
    assert not FORKED.contains(version(1, 4))
    assert not FORKED.contains(version(3, 5))
    assert FORKED.contains(version(4, 6))


def test_appending_extends_the_timeline_or_opens_the_next_one() -> None:
    history = PolicyHistory.start(version(1, 0))
    for step in (version(1, 1), version(1, 1), version(1, 2), version(3, 2), version(3, 3)):
        history = history.append(step)
    assert history.to_json() == [[1, 0, 2], [3, 2, 3]]
    assert history.newest == version(3, 3)


@pytest.mark.parametrize("wrong", [version(4, 8), version(4, 5), version(5, 9), version(3, 7), version(5, 5)])
def test_a_version_that_does_not_follow_is_refused(wrong: PolicyVersion) -> None:
    with pytest.raises(ValueError, match="cannot follow"):
        FORKED.append(wrong)


def test_staleness_counts_updates_and_republished_weights_are_not_stale() -> None:
    assert FORKED.staleness(version(1, 3), version(2, 3)) == 0
    assert FORKED.staleness(version(1, 1), version(4, 6)) == 5
    assert FORKED.staleness(version(4, 6), version(4, 6)) == 0


def test_the_age_of_foreign_weights_is_an_error_not_a_number() -> None:
    with pytest.raises(DataError, match=r"1\.4"):
        FORKED.staleness(version(1, 4), version(4, 6))


def test_a_history_survives_json() -> None:
    assert PolicyHistory.from_json(FORKED.to_json()) == FORKED
