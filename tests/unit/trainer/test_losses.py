from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headrace.config.rl import Training
from headrace.errors import ConfigError
from headrace_trainer.losses.aggregate import token_weights
from headrace_trainer.losses.cispo import cispo
from headrace_trainer.losses.dppo import dppo
from headrace_trainer.losses.gspo import gspo
from headrace_trainer.losses.importance import importance_weights
from headrace_trainer.losses.kl import kl_per_token
from headrace_trainer.losses.mismatch import MismatchSums, mismatch
from headrace_trainer.losses.ppo import ppo_clip
from headrace_trainer.losses.ratios import RatioSums, ratio_sums
from headrace_trainer.losses.sapo import sapo
from headrace_trainer.losses.select import loss_function, source_sha256
from headrace_trainer.losses.sft import cross_entropy
from headrace_trainer.losses.tokens import LossFunction, LossTokens, TokenLoss

clip = partial(ppo_clip, clip_low=0.2, clip_high=0.28)
LOSSES: dict[str, LossFunction] = {
    "ppo_clip": clip,
    "dual_clip": partial(clip, dual_clip=3.0),
    "ratio_cap": partial(clip, ratio_cap=1.6),
    "gspo": partial(gspo, clip_low=0.05, clip_high=0.06),
    "cispo": partial(cispo, ratio_cap=1.2),
    "sapo": partial(sapo, temperature_positive=1.0, temperature_negative=1.05),
    "dppo": partial(dppo, max_shift=0.2, pull=1e-3),
}


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def logs(*values: float) -> torch.Tensor:
    return tensor(*values).log()


def tokens_of(
    logprobs: torch.Tensor,
    old: torch.Tensor,
    advantages: torch.Tensor,
    rollouts: list[int] | None = None,
    behaviour: torch.Tensor | None = None,
) -> LossTokens:
    rollout_N = torch.tensor(rollouts if rollouts is not None else range(len(old)), dtype=torch.int64)
    n = int(rollout_N.max()) + 1 if len(old) else 0
    return LossTokens(logprobs, old, old if behaviour is None else behaviour, advantages, rollout_N, n)


def gradient(loss: LossFunction, logprobs: torch.Tensor, *columns: Any, **more: Any) -> list[float]:
    leaf = logprobs.clone().requires_grad_()
    loss(tokens_of(leaf, *columns, **more)).loss_N.sum().backward()
    assert leaf.grad is not None
    return leaf.grad.tolist()


def test_the_clipped_loss_equals_the_values_worked_out_by_hand() -> None:
    # ratios 1.5, 1.5, 0.5, 0.5, 1.1, 0.5; bounds 0.8 and 1.28
    # A=+1: min(1.5, 1.28) = 1.28; A=-1: min(-1.5, -1.28) = -1.5
    # A=+1: min(0.5, 0.8) = 0.5;   A=-1: min(-0.5, -0.8) = -0.8;  A=2: 2.2;  A=-3: min(-1.5, -2.4) = -2.4
    tokens = tokens_of(
        logs(0.3, 0.3, 0.1, 0.1, 0.22, 0.1), logs(0.2, 0.2, 0.2, 0.2, 0.2, 0.2), tensor(1, -1, 1, -1, 2, -3)
    )
    found = clip(tokens)
    assert found.loss_N.tolist() == pytest.approx([-1.28, 1.5, -0.5, 0.8, -2.2, 2.4])
    sums = ratio_sums(tokens, found)
    assert (sums.n_tokens, sums.n_clipped_low, sums.n_clipped_high) == (6, 2, 1)
    assert sums.ratio_sum == pytest.approx(5.6)
    assert (sums.ratio_min, sums.ratio_max) == (pytest.approx(0.5), pytest.approx(1.5))


def test_the_clip_ends_the_gradient_on_one_side_only() -> None:
    found = gradient(clip, logs(0.3, 0.3, 0.1, 0.1, 0.22), logs(*[0.2] * 5), tensor(1, -1, 1, -1, 2))
    assert found == pytest.approx([0, 1.5, -0.5, 0, -2.2])


def test_dual_clip_bounds_the_loss_of_negative_advantages_alone() -> None:
    # ratio 5: A=-1 gives min(-5, -1.28) = -5, held at 3 x -1; A=+1 gives 1.28 as before
    dual = partial(clip, dual_clip=3.0)
    tokens = tokens_of(logs(0.5, 0.5), logs(0.1, 0.1), tensor(-1, 1))
    assert dual(tokens).loss_N.tolist() == pytest.approx([3.0, -1.28])
    assert gradient(dual, logs(0.5), logs(0.1), tensor(-1)) == [0.0]


def test_a_ratio_cap_bounds_negative_advantages_too() -> None:
    tokens = tokens_of(logs(0.5), logs(0.1), tensor(-1))
    assert partial(clip, ratio_cap=4.0)(tokens).loss_N.tolist() == pytest.approx([4.0])


def test_gspo_has_one_ratio_per_rollout_the_geometric_mean_of_its_tokens() -> None:
    # rollout 0: ratios 2 and 0.5, so 1; rollout 1: ratio 1.1
    tokens = tokens_of(logs(0.4, 0.1, 0.22), logs(0.2, 0.2, 0.2), tensor(1, 1, -1), rollouts=[0, 0, 1])
    assert partial(gspo, clip_low=0.5, clip_high=0.5)(tokens).loss_N.tolist() == pytest.approx([-1, -1, 1.1])
    # each token of a rollout of two carries half of the gradient of each copy of the ratio: s A / n x n
    found = gradient(
        partial(gspo, clip_low=0.5, clip_high=0.5),
        logs(0.4, 0.1),
        logs(0.2, 0.2),
        tensor(1, 1),
        rollouts=[0, 0],
    )
    assert found == pytest.approx([-1.0, -1.0])


def test_cispo_bounds_the_weight_and_silences_no_token() -> None:
    # ratio 2 capped at 1.2, ratio 0.5 as it is; the gradient is weight x A
    found = gradient(LOSSES["cispo"], logs(0.4, 0.1), logs(0.2, 0.2), tensor(1, -2))
    assert found == pytest.approx([-1.2, 1.0])


def test_sapo_has_the_gradient_of_the_plain_policy_term_where_nothing_has_moved() -> None:
    assert gradient(LOSSES["sapo"], logs(0.2, 0.2), logs(0.2, 0.2), tensor(1.5, -2)) == pytest.approx(
        [-1.5, 2]
    )


def test_dppo_leaves_out_what_moved_far_in_its_advantages_direction() -> None:
    # shifts: +0.4 with A > 0 out, +0.4 with A < 0 in, -0.4 with A < 0 out
    tokens = tokens_of(logs(0.6, 0.6, 0.2), logs(0.2, 0.2, 0.6), tensor(1, -1, -1))
    found = partial(dppo, max_shift=0.2, pull=0.0)(tokens)
    assert found.loss_N.tolist() == pytest.approx([0, 3, 0])
    assert found.is_clipped_high_N.tolist() == [True, False, False]
    assert found.is_clipped_low_N.tolist() == [False, False, True]


@pytest.mark.parametrize("name", ["ppo_clip", "dual_clip", "gspo", "sapo", "dppo"])
def test_the_loss_passes_gradcheck_away_from_its_kinks(name: str) -> None:
    old, advantages, rollouts = logs(*[0.2] * 5), tensor(1, -1, 1, -1, 2), [0, 0, 1, 1, 1]

    def loss(values: torch.Tensor) -> torch.Tensor:
        return LOSSES[name](tokens_of(values, old, advantages, rollouts)).loss_N

    assert torch.autograd.gradcheck(loss, (logs(0.21, 0.25, 0.1, 0.21, 0.22).requires_grad_(),))


@pytest.mark.parametrize("name", [*LOSSES])
def test_with_nothing_moved_the_gradient_is_that_of_reinforce(name: str) -> None:
    old, advantages = logs(0.3, 0.9, 0.001), tensor(2, -1, 0.5)
    found = gradient(LOSSES[name], old, old, advantages)
    assert found == pytest.approx((-advantages).tolist())
    held = LOSSES[name](tokens_of(old, old, advantages))
    assert not (held.is_clipped_low_N | held.is_clipped_high_N).any()


@pytest.mark.parametrize("name", [*LOSSES])
@pytest.mark.parametrize("gap", [1e4, -1e4])
def test_policies_far_apart_give_finite_losses_and_gradients(name: str, gap: float) -> None:
    leaf = torch.tensor([gap, 0.0]).requires_grad_()
    tokens = tokens_of(leaf, torch.zeros(2), torch.tensor([-1.0, 1.0]), [0, 0])
    loss = LOSSES[name](tokens).loss_N.sum() + kl_per_token(leaf, torch.zeros(2), "k3").sum()
    loss.backward()
    assert leaf.grad is not None
    assert torch.isfinite(loss)
    assert torch.isfinite(leaf.grad).all()


@pytest.mark.parametrize("name", [*LOSSES])
def test_a_micro_batch_without_tokens_gives_a_zero_loss_not_a_nan(name: str) -> None:
    empty = torch.zeros(0, requires_grad=True)
    tokens = tokens_of(empty, empty.detach(), empty.detach())
    found = LOSSES[name](tokens)
    assert (found.loss_N.sum().item(), ratio_sums(tokens, found)) == (0.0, RatioSums())


@pytest.mark.parametrize("name", [*LOSSES])
@given(seed=st.integers(0, 1000))
def test_the_order_of_tokens_and_the_neighbours_in_a_micro_batch_change_no_tokens_loss(
    name: str, seed: int
) -> None:
    draw = torch.Generator().manual_seed(seed)
    new, old, behaviour = -torch.rand(3, 9, generator=draw, dtype=torch.float64)
    rollouts = torch.randint(0, 3, (9,), generator=draw)
    rollouts[:3] = torch.arange(3)
    advantages = torch.randn(3, generator=draw, dtype=torch.float64)[rollouts]
    whole = LOSSES[name](LossTokens(new, old, behaviour, advantages, rollouts, 3)).loss_N
    order = torch.randperm(9, generator=draw)
    mixed = LossTokens(new[order], old[order], behaviour[order], advantages[order], rollouts[order], 3)
    torch.testing.assert_close(LOSSES[name](mixed).loss_N, whole[order])
    for rollout in range(3):
        mine = rollouts == rollout
        alone = LossTokens(
            new[mine], old[mine], behaviour[mine], advantages[mine], torch.zeros_like(rollouts[mine]), 1
        )
        torch.testing.assert_close(LOSSES[name](alone).loss_N, whole[mine])


def test_columns_that_do_not_align_or_carry_a_gradient_are_refused() -> None:
    ones = torch.ones(2)
    with pytest.raises(ValueError, match=r"advantages_N has shape \(3,\), logprobs_N has \(2,\)"):
        tokens_of(ones, ones, torch.ones(3))
    with pytest.raises(ValueError, match="old_logprobs_N carries a gradient"):
        tokens_of(ones, ones.clone().requires_grad_(), ones, behaviour=ones)


# the gap between who sampled and who is trained


def weights_of(correction: Any, low: float = 0.5, high: float = 2.0) -> tuple[list[float], Any]:
    # w: 4, 1, 0.25 in rollout 0 (product 1, geometric mean 1); 1.5, 1.5 in rollout 1 (2.25, 1.5)
    old, behaviour = logs(0.4, 0.2, 0.1, 0.3, 0.3), logs(0.1, 0.2, 0.4, 0.2, 0.2)
    tokens = tokens_of(old, old, torch.zeros(5), [0, 0, 0, 1, 1], behaviour)
    weights, sums = importance_weights(tokens, correction, low=low, high=high)
    return weights.tolist(), sums


def test_importance_weights_are_truncated_or_masked_by_token_rollout_or_mean() -> None:
    assert weights_of("none")[0] == [1, 1, 1, 1, 1]
    assert weights_of("token")[0] == pytest.approx([2, 1, 0.25, 1.5, 1.5])
    assert weights_of("token_mask")[0] == pytest.approx([0, 1, 0, 1.5, 1.5])
    assert weights_of("sequence")[0] == pytest.approx([1, 1, 1, 2, 2])
    assert weights_of("sequence_mask")[0] == pytest.approx([1, 1, 1, 0, 0])
    assert weights_of("geometric_mask", 0.9, 1.1)[0] == [1, 1, 1, 0, 0]


def test_the_effective_share_tells_how_unequal_the_weights_are() -> None:
    sums = weights_of("none")[1]
    # weights 4, 1, 0.25, 1.5, 1.5: sum 8.25, squares 21.5625
    assert sums.effective_share == pytest.approx(8.25**2 / (5 * 21.5625))
    assert (sums.n_held, sums.weight_max) == (0, pytest.approx(4))
    assert weights_of("token")[1].n_held == 1
    assert weights_of("sequence_mask")[1].effective_share == pytest.approx(3 / 5)


def test_importance_weights_carry_no_gradient() -> None:
    leaf = logs(0.3).requires_grad_()
    weights, _ = importance_weights(tokens_of(leaf, logs(0.3), tensor(1)), "token", low=0.5, high=2.0)
    assert not weights.requires_grad


@pytest.mark.parametrize(("kind", "value", "slope"), [("k1", 0.5, 1.0), ("k2", 0.125, 0.5)])
def test_kl_estimators_by_hand(kind: Any, value: float, slope: float) -> None:
    leaf = tensor(-1.0).requires_grad_()
    kl = kl_per_token(leaf, tensor(-1.5), kind)  # d = -0.5
    kl.backward()
    assert (kl.item(), leaf.grad.item()) == (pytest.approx(value), pytest.approx(slope))  # type: ignore[union-attr]


def test_k3_is_never_negative_and_its_gradient_is_one_minus_exp_d() -> None:
    leaf = tensor(-1.0).requires_grad_()
    kl = kl_per_token(leaf, tensor(-1.5), "k3")
    kl.backward()
    assert kl.item() == pytest.approx(math.exp(-0.5) - 0.5)
    assert leaf.grad.item() == pytest.approx(1 - math.exp(-0.5))  # type: ignore[union-attr]
    spread = kl_per_token(torch.linspace(-50, 50, 101), torch.zeros(101), "k3")
    assert (spread >= 0).all()
    assert torch.isfinite(spread).all()


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


# the normaliser


def test_each_normalisation_by_hand() -> None:
    rows = [("a", 3), ("a", 1), ("b", 2), ("c", 0)]
    assert token_weights(rows, "token") == [1 / 6] * 4
    assert token_weights(rows, "sequence") == [1 / 8, 1 / 8, 1 / 4, 0.0]
    assert token_weights(rows, "sequence_sum") == [1 / 2] * 4
    assert token_weights(rows, "constant", 10) == [1 / 20] * 4


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


# losses by name and by import path


@pytest.mark.parametrize(
    ("name", "options", "reached"),
    [
        (
            "ppo_clip",
            {"clip_low": 0.1, "clip_high": 0.3, "dual_clip": 3.0, "ratio_cap": 4.0},
            {"clip_low": 0.1, "clip_high": 0.3, "dual_clip": 3.0, "ratio_cap": 4.0},
        ),
        ("gspo", {"normalization": "sequence", "clip_low": 0.1}, {"clip_low": 0.1, "clip_high": 4e-4}),
        ("cispo", {"ratio_cap": 3.0}, {"ratio_cap": 3.0}),
        ("cispo", {}, {"ratio_cap": 5.0}),
        (
            "sapo",
            {"sapo_temperature_positive": 2.0, "sapo_temperature_negative": 3.0},
            {"temperature_positive": 2.0, "temperature_negative": 3.0},
        ),
        ("dppo", {"dppo_max_shift": 0.1, "dppo_pull": 0.01}, {"max_shift": 0.1, "pull": 0.01}),
    ],
)
def test_every_option_of_a_loss_reaches_it(
    name: str, options: dict[str, Any], reached: dict[str, float]
) -> None:
    chosen: Any = loss_function(Training(loss=name, **options))
    assert (chosen.func.__name__, chosen.keywords) == (name, reached)


def test_gspo_has_bounds_of_its_own_unless_they_are_given() -> None:
    narrow = loss_function(Training(loss="gspo", normalization="sequence"))
    assert narrow.keywords == {"clip_low": 3e-4, "clip_high": 4e-4}  # type: ignore[attr-defined]
    given_bounds = Training(loss="gspo", normalization="sequence", clip_low=0.1, clip_high=0.2)
    assert loss_function(given_bounds).keywords == {"clip_low": 0.1, "clip_high": 0.2}  # type: ignore[attr-defined]


OWN = """
from headrace_trainer.losses.tokens import TokenLoss

def plain(tokens):
    return TokenLoss(-tokens.advantages_N * tokens.logprobs_N)

def mean(tokens):
    return tokens.logprobs_N.mean()
"""


@pytest.fixture
def own_losses(tmp_path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "own_losses.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "own_losses"


def test_a_loss_of_the_users_own_is_imported_from_a_listed_package_only(own_losses: str) -> None:
    config = Training(loss=f"{own_losses}:plain")
    with pytest.raises(ConfigError, match="not among this server's plugins"):
        loss_function(config)
    found = loss_function(config, (own_losses,))(tokens_of(logs(0.5), logs(0.5), tensor(2)))
    assert isinstance(found, TokenLoss)
    assert found.loss_N.item() == pytest.approx(-2 * math.log(0.5))


def test_the_loss_shown_in_the_docs_is_plain_policy_gradient() -> None:
    page = (Path(__file__).parents[3] / "docs" / "how-it-works.md").read_text()
    [example] = [
        block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "LossTokens" in block
    ]
    names: dict[str, Any] = {}
    exec(compile(example, "docs", "exec"), names)
    tokens = tokens_of(logs(0.5, 0.2), logs(0.1, 0.9), tensor(2, -1))
    found = names["reinforce"](tokens)
    assert found.loss_N.tolist() == pytest.approx([-2 * math.log(0.5), math.log(0.2)])
    sums = ratio_sums(tokens, found)
    assert (sums.n_tokens, sums.n_clipped_low, sums.n_clipped_high) == (2, 0, 0)


def test_a_loss_that_does_not_give_a_value_per_token_is_refused(own_losses: str) -> None:
    loss = loss_function(Training(loss=f"{own_losses}:mean"), (own_losses,))
    with pytest.raises(ConfigError, match="must return a TokenLoss with one value per token"):
        loss(tokens_of(logs(0.5), logs(0.5), tensor(2)))


def test_a_path_that_leads_nowhere_is_named(own_losses: str) -> None:
    with pytest.raises(ConfigError, match="own_losses:absent' cannot be imported"):
        loss_function(Training(loss=f"{own_losses}:absent"), (own_losses,))


def test_the_source_of_an_own_loss_has_a_hash_that_follows_its_text(own_losses: str) -> None:
    function: Callable[..., Any] = __import__(own_losses).plain
    assert source_sha256(function) == source_sha256(__import__(own_losses).mean)
    assert source_sha256(function) != source_sha256(ppo_clip)
    assert source_sha256(loss_function(Training(loss=f"{own_losses}:mean"), (own_losses,))) == source_sha256(
        function
    )
    assert source_sha256(loss_function(Training())) == source_sha256(ppo_clip)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"loss": "ppo"}, "none of ppo_clip, gspo, cispo, sapo, dppo"),
        (
            {"loss": "cispo", "clip_low": 0.1},
            'clip_low has no effect with loss = "cispo"; it belongs to ppo_clip',
        ),
        ({"dppo_pull": 0.1}, 'dppo_pull has no effect with loss = "ppo_clip"; it belongs to dppo'),
        ({"loss": "gspo"}, 'use normalization = "sequence"'),
        ({"loss": "dppo", "importance": "token"}, "would weigh twice"),
        ({"normalization": "constant"}, "belong together"),
        ({"normalization_length": 64}, "belong together"),
        ({"discount": 0.9}, 'discount acts with credit = "reward_to_go" only'),
        ({"importance_high": 3.0}, "need [training] importance"),
        ({"kl_estimator": "k2"}, "needs a [training] kl_coef above 0"),
    ],
)
def test_options_that_contradict_or_would_not_act_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError) as error:
        Training(**options)
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"loss": "gspo", "normalization": "sequence", "clip_high": 5e-4},
        {"loss": "sapo", "sapo_temperature_negative": 1.2},
        {"loss": "dppo", "dppo_pull": 0.01},
        {"credit": "reward_to_go", "discount": 0.9, "kl_coef": 0.1, "kl_estimator": "k2"},
        {
            "normalization": "constant",
            "normalization_length": 64,
            "importance": "token",
            "importance_high": 3.0,
        },
    ],
)
def test_a_stored_snapshot_names_every_key_and_is_accepted_again(options: dict[str, Any]) -> None:
    training = Training(**options)
    assert Training.model_validate(training.model_dump(mode="json")) == training
