from __future__ import annotations

import pytest

from headrace.errors import ConfigError
from headrace.rl.seeds import SeedSchedule


def test_each_epoch_holds_every_seed_once_in_an_order_of_its_own() -> None:
    schedule = SeedSchedule(range(10, 30), "shuffle", seed=3)
    first, position = schedule.draw(0, 20)
    second, position = schedule.draw(position, 20)
    assert sorted(first) == sorted(second) == list(range(10, 30))
    assert first != second
    assert position == 40


def test_what_comes_next_depends_on_the_position_alone() -> None:
    whole, _ = SeedSchedule(range(7), "shuffle", seed=1).draw(0, 30)
    position, pieces = 0, []
    for n in (4, 1, 9, 0, 16):
        drawn, position = SeedSchedule(range(7), "shuffle", seed=1).draw(position, n)
        pieces += drawn
    assert pieces == whole


def test_another_seed_gives_another_order() -> None:
    assert SeedSchedule(range(50), "shuffle", 0).draw(0, 50) != SeedSchedule(range(50), "shuffle", 1).draw(
        0, 50
    )


def test_sequential_order_is_the_list_again_and_again() -> None:
    assert SeedSchedule([5, 6, 7], "sequential", 0).draw(2, 5) == ([7, 5, 6, 7, 5], 7)


def test_the_shuffled_order_is_pinned_since_checkpoints_hold_only_a_position() -> None:
    assert SeedSchedule(range(6), "shuffle", seed=0).draw(0, 6)[0] == PINNED


@pytest.mark.parametrize(("seeds", "sentence"), [([], "empty"), ([1, 2, 1], "1 more than once")])
def test_an_empty_list_and_a_seed_twice_are_refused(seeds: list[int], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        SeedSchedule(seeds, "shuffle", 0)


PINNED = [0, 5, 1, 4, 3, 2]
