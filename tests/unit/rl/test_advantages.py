from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import DataError
from headrace.rl.advantages import batch_advantages, group_advantages, is_zero_variance


def test_grpo_divides_by_the_sample_standard_deviation() -> None:
    # mean 0.25, sample variance (3 * 0.0625 + 0.5625) / 3 = 0.25, std 0.5
    assert group_advantages([0.0, 0.0, 0.0, 1.0], "grpo") == pytest.approx(
        [-0.25 / 0.5001, -0.25 / 0.5001, -0.25 / 0.5001, 0.75 / 0.5001], abs=1e-15
    )


def test_dr_grpo_only_subtracts_the_mean() -> None:
    assert group_advantages([1.0, 2.0, 6.0], "dr_grpo") == [-2.0, -1.0, 3.0]


@pytest.mark.parametrize("kind", ["grpo", "dr_grpo"])
def test_a_zero_variance_group_gets_exact_zeros(kind) -> None:
    assert group_advantages([0.1, 0.1 + 1e-9, 0.1], kind) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("returns", [[], [1.0]])
def test_fewer_than_two_members_are_an_error_not_a_silent_zero(returns: list[float]) -> None:
    with pytest.raises(DataError, match="no baseline"):
        group_advantages(returns, "grpo")


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_return_that_is_no_number_is_an_error(value: float) -> None:
    with pytest.raises(DataError, match="not all finite"):
        group_advantages([0.0, value], "grpo")


def test_zero_variance_is_a_matter_of_1e_8() -> None:
    assert is_zero_variance([1.0, 1.0 + 5e-9])
    assert not is_zero_variance([1.0, 1.0 + 5e-8])


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=16), st.sampled_from(["grpo", "dr_grpo"]))
def test_advantages_sum_to_zero_and_keep_the_order_of_returns(returns: list[float], kind) -> None:
    advantages = group_advantages(returns, kind)
    assert math.fsum(advantages) == pytest.approx(0.0, abs=1e-9)
    if not is_zero_variance(returns):
        assert sorted(range(len(returns)), key=lambda i: (returns[i], i)) == sorted(
            range(len(returns)), key=lambda i: (advantages[i], i)
        ) or len(set(advantages)) < len(set(returns))


def test_every_member_counts_in_the_baseline_not_the_first_alone() -> None:
    assert group_advantages([0.0, 1.0, 1.0], "dr_grpo") == pytest.approx([-2 / 3, 1 / 3, 1 / 3])


def test_rloo_compares_with_the_mean_of_the_others() -> None:
    assert group_advantages([1.0, 2.0, 6.0], "rloo") == pytest.approx([1 - 4, 2 - 3.5, 6 - 1.5])


def test_maxrl_divides_by_the_mean_and_needs_returns_that_are_not_negative() -> None:
    assert group_advantages([0.0, 0.0, 0.0, 1.0], "maxrl") == [-1.0, -1.0, -1.0, 3.0]
    with pytest.raises(DataError, match="needs returns of at least 0"):
        group_advantages([-1.0, 1.0], "maxrl")


def test_reinforce_pp_divides_by_the_spread_of_the_whole_batch() -> None:
    # centred: -0.5, 0.5 and -2, 2; sample std of the four about 0 is sqrt(8.5 / 3)
    std = math.sqrt(8.5 / 3) + 1e-4
    found = batch_advantages([[0.0, 1.0], [1.0, 5.0]], "reinforce_pp")
    assert found == [pytest.approx([-0.5 / std, 0.5 / std]), pytest.approx([-2 / std, 2 / std])]


@pytest.mark.parametrize("scale", [1e200, 1e-150, 1.0])
def test_grpo_neither_overflows_nor_vanishes_for_returns_of_any_size(scale: float) -> None:
    if scale > 1:
        found = group_advantages([-scale, 0.0, scale], "grpo")
        assert found == pytest.approx([-1.0, 0.0, 1.0])
    else:
        assert all(map(math.isfinite, group_advantages([0.0, scale, 2 * scale], "grpo")))


@given(
    st.lists(st.lists(st.floats(0, 100), min_size=2, max_size=5), min_size=1, max_size=5),
    st.sampled_from(["grpo", "dr_grpo", "rloo", "reinforce_pp", "maxrl"]),
)
def test_each_groups_advantages_sum_to_zero_under_every_baseline(groups, kind) -> None:
    for advantages in batch_advantages(groups, kind):
        assert math.fsum(advantages) == pytest.approx(0.0, abs=1e-6)
