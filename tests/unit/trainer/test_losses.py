from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headrace_trainer.losses.aggregate import token_weights
from headrace_trainer.losses.grpo import RatioSums, clipped_policy_loss
from headrace_trainer.losses.mismatch import MismatchSums, mismatch
from headrace_trainer.losses.sft import cross_entropy


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def logs(*values: float) -> torch.Tensor:
    return tensor(*values).log()


def test_clipped_loss_equals_the_value_worked_out_by_hand() -> None:
    # ratios 1.5, 1.5, 0.5, 0.5, 1.1, 0.5; bounds 0.8 and 1.28
    # A=+1: min(1.5, 1.28) = 1.28; A=-1: min(-1.5, -1.28) = -1.5
    # A=+1: min(0.5, 0.8) = 0.5;   A=-1: min(-0.5, -0.8) = -0.8;  A=2: 2.2;  A=-3: min(-1.5, -2.4) = -2.4
    loss, sums = clipped_policy_loss(
        logs(0.3, 0.3, 0.1, 0.1, 0.22, 0.1),
        logs(0.2, 0.2, 0.2, 0.2, 0.2, 0.2),
        tensor(1, -1, 1, -1, 2, -3),
        torch.full((6,), 1 / 6, dtype=torch.float64),
        clip_low=0.2,
        clip_high=0.28,
    )
    assert loss.item() == pytest.approx(-(1.28 - 1.5 + 0.5 - 0.8 + 2.2 - 2.4) / 6)
    assert (sums.n_tokens, sums.n_clipped_low, sums.n_clipped_high) == (6, 2, 1)
    assert sums.ratio_sum == pytest.approx(5.6)
    assert sums.ratio_max == pytest.approx(1.5)


def test_gradient_is_advantage_times_ratio_where_the_clip_is_not_active_and_zero_where_it_is() -> None:
    logprobs = logs(0.3, 0.3, 0.1, 0.1, 0.22).requires_grad_()
    loss, _ = clipped_policy_loss(
        logprobs,
        logs(0.2, 0.2, 0.2, 0.2, 0.2),
        tensor(1, -1, 1, -1, 2),
        torch.ones(5, dtype=torch.float64),
        clip_low=0.2,
        clip_high=0.28,
    )
    loss.backward()
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == pytest.approx([0, 1.5, -0.5, 0, -2.2])


def test_the_loss_passes_gradcheck_away_from_its_kinks() -> None:
    logprobs = logs(0.3, 0.25, 0.1, 0.21, 0.22).requires_grad_()

    def loss(values: torch.Tensor) -> torch.Tensor:
        return clipped_policy_loss(
            values,
            logs(0.2, 0.2, 0.2, 0.2, 0.2),
            tensor(1, -1, 1, -1, 2),
            tensor(0.1, 0.3, 0.2, 0.2, 0.2),
            clip_low=0.2,
            clip_high=0.3,
        )[0]

    assert torch.autograd.gradcheck(loss, (logprobs,))


def test_with_old_equal_to_new_the_ratio_is_one_and_the_gradient_is_the_advantage() -> None:
    logprobs = logs(0.3, 0.9, 0.001).requires_grad_()
    weights, advantages = tensor(0.5, 0.25, 0.25), tensor(2, -1, 0.5)
    loss, sums = clipped_policy_loss(
        logprobs, logprobs.detach(), advantages, weights, clip_low=0.2, clip_high=0.2
    )
    loss.backward()
    assert (sums.n_clipped_low, sums.n_clipped_high, sums.ratio_sum, sums.ratio_max) == (0, 0, 3.0, 1.0)
    assert logprobs.grad is not None
    assert torch.equal(logprobs.grad, -(weights * advantages))


@pytest.mark.parametrize("gap", [1e4, -1e4])
def test_policies_far_apart_give_finite_losses_and_gradients(gap: float) -> None:
    logprobs = torch.tensor([gap, 0.0]).requires_grad_()
    loss, _ = clipped_policy_loss(
        logprobs, torch.zeros(2), torch.tensor([-1.0, 1.0]), torch.ones(2), clip_low=0.2, clip_high=0.2
    )
    loss.backward()
    assert logprobs.grad is not None
    assert torch.isfinite(loss)
    assert torch.isfinite(logprobs.grad).all()
    gaps = mismatch(logprobs.detach(), torch.zeros(2), torch.ones(2) > 0)
    assert math.isfinite(gaps.k3)


def test_no_token_gives_a_zero_loss_not_a_nan() -> None:
    empty = torch.zeros(0, requires_grad=True)
    loss, sums = clipped_policy_loss(empty, empty.detach(), empty, empty, clip_low=0.2, clip_high=0.2)
    assert (loss.item(), sums) == (0.0, RatioSums())


def test_mismatch_is_k3_over_the_counted_tokens_alone() -> None:
    gaps = mismatch(tensor(-1.0, -2.0, -5.0), tensor(-1.5, -1.75, -1.0), torch.tensor([True, True, False]))
    # x = 0.5 and -0.25
    assert gaps.n_tokens == 2
    assert gaps.mean_abs == pytest.approx(0.375)
    assert gaps.abs_max == pytest.approx(0.5)
    assert gaps.k3 == pytest.approx((math.exp(0.5) - 1.5 + math.exp(-0.25) - 0.75) / 2)


def test_a_nan_logprob_makes_the_mismatch_nan_not_small() -> None:
    gaps = mismatch(tensor(math.nan, 0.0), tensor(0.0, 0.0), torch.tensor([True, True]))
    assert math.isnan(gaps.mean_abs)
    uncounted = mismatch(tensor(math.nan, 0.0), tensor(0.0, 0.0), torch.tensor([False, True]))
    assert uncounted == MismatchSums(1, 0.0, 0.0, 0.0)


def test_cross_entropy_is_the_weighted_mean_and_passes_gradcheck() -> None:
    logprobs, weights = logs(0.5, 0.25).requires_grad_(), tensor(0.5, 0.5)
    assert cross_entropy(logprobs, weights).item() == pytest.approx(1.5 * math.log(2))
    assert torch.autograd.gradcheck(cross_entropy, (logprobs, weights))


def test_token_weights_are_one_over_all_tokens_of_the_batch() -> None:
    assert token_weights([("a", 3), ("b", 0), ("c", 5)], "token") == [1 / 8, 1 / 8, 1 / 8]


def test_sequence_weights_count_a_rollout_once_however_many_rows_it_has() -> None:
    weights = token_weights([("a", 3), ("a", 1), ("b", 2), ("c", 0)], "sequence")
    assert weights == [1 / 8, 1 / 8, 1 / 4, 0.0]


def test_a_batch_without_tokens_has_no_weight() -> None:
    assert token_weights([("a", 0)], "token") == token_weights([("a", 0)], "sequence") == [0.0]


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 9)), min_size=1).filter(
        lambda rows: any(n for _, n in rows)
    ),
    st.sampled_from(["token", "sequence"]),
)
def test_the_weights_of_all_tokens_sum_to_one(rows: list[tuple[str, int]], normalization) -> None:
    weights = token_weights(rows, normalization)
    assert math.fsum(w * n for w, (_, n) in zip(weights, rows, strict=True)) == pytest.approx(1.0)


@given(st.integers(1, 7), st.integers(0, 100))
def test_the_loss_does_not_depend_on_where_the_batch_is_cut(cut: int, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    new, old, advantages, weights = torch.randn(4, 8, generator=draw, dtype=torch.float64)
    settings = {"clip_low": 0.2, "clip_high": 0.3}
    whole, sums = clipped_policy_loss(new, old, advantages, weights, **settings)
    parts = [
        clipped_policy_loss(new[s], old[s], advantages[s], weights[s], **settings)
        for s in (slice(0, cut), slice(cut, 8))
    ]
    assert whole.item() == pytest.approx(parts[0][0].item() + parts[1][0].item())
    joined = parts[0][1] + parts[1][1]
    assert (joined.n_tokens, joined.n_clipped_low, joined.n_clipped_high, joined.ratio_max) == (
        sums.n_tokens,
        sums.n_clipped_low,
        sums.n_clipped_high,
        sums.ratio_max,
    )
