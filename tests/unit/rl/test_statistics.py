from __future__ import annotations

import random

import pytest

from headrace.errors import DataError
from headrace.rl.statistics import PairedDifference, paired_difference


def against_zero(samples: dict[int, list[float]], seed: int = 0) -> PairedDifference:
    """The difference to a baseline of zeros: the samples' own mean with its interval."""
    return paired_difference({s: [0.0] for s in samples}, samples, seed=seed)


def test_the_difference_is_a_mean_over_seeds_not_over_samples() -> None:
    difference = paired_difference({1: [0.0], 2: [0.0, 0.0, 0.0]}, {1: [1.0], 2: [0.0, 0.0, 0.0]})
    assert difference.mean == 0.5
    assert difference.n_clusters == 2


def test_a_constant_improvement_has_no_width() -> None:
    difference = paired_difference({s: [0.1 * s] for s in range(5)}, {s: [0.1 * s + 0.5] for s in range(5)})
    assert (difference.low, difference.high) == pytest.approx((0.5, 0.5))


def test_pairing_removes_what_the_seeds_share() -> None:
    draw = random.Random(0)
    baseline = {s: [draw.uniform(-10, 10)] for s in range(30)}
    treated = {s: [values[0] + draw.uniform(0.4, 0.6)] for s, values in baseline.items()}
    difference = paired_difference(baseline, treated)
    assert 0.4 < difference.low < difference.mean < difference.high < 0.6


def test_more_samples_of_one_seed_do_not_narrow_the_interval() -> None:
    once = against_zero({0: [0.0], 1: [1.0], 2: [0.0], 3: [1.0]})
    often = against_zero({0: [0.0] * 50, 1: [1.0] * 50, 2: [0.0] * 50, 3: [1.0] * 50})
    assert once == often
    assert once.high - once.low >= 0.5


def test_the_interval_of_a_known_sample_covers_its_mean_at_the_normal_width() -> None:
    draw = random.Random(1)
    samples = {seed: [draw.gauss(0, 1)] for seed in range(400)}
    interval = against_zero(samples)
    assert interval.high - interval.low == pytest.approx(2 * 1.96 / 20, rel=0.15)


def test_the_same_seed_gives_the_same_interval() -> None:
    samples = {seed: [float(seed % 3)] for seed in range(20)}
    assert against_zero(samples, seed=4) == against_zero(dict(reversed(samples.items())), seed=4)


def test_seeds_played_on_one_side_only_are_refused_by_name() -> None:
    with pytest.raises(DataError, match="seed 7"):
        paired_difference({1: [0.0]}, {1: [1.0], 7: [1.0]})


@pytest.mark.parametrize("samples", [{}, {3: []}])
def test_nothing_played_is_an_error_not_a_zero(samples: dict[int, list[float]]) -> None:
    with pytest.raises(DataError):
        against_zero(samples)
