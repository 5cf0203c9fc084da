from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.unit.trainer.conftest import batch_of, is_same, make_rows, state_of, with_engine_logprobs
from tests.unit.trainer.test_logprobs import by_hand

from headrace.config.rl import Training
from headrace.errors import DataError, JobFailed
from headrace_trainer.batch import Row
from headrace_trainer.losses.select import loss_function
from headrace_trainer.optimizer import make_optimizer
from headrace_trainer.step import StepMetrics, rl_step

CONFIG = Training(learning_rate=1e-3, max_grad_norm=1e9)
Fresh = Callable[[], Any]


def train(
    model: Any, rows: list[Row], config: Training = CONFIG, normalization: str = "token", **more: Any
) -> StepMetrics:
    optimizer = make_optimizer(model, learning_rate=1.0, weight_decay=0.1)
    return rl_step(
        model, optimizer, batch_of(rows, normalization), config, loss=loss_function(config), step=0, **more
    )


def gradient_of(model: Any, rows: list[Row], normalization: str, budget: int = 16384) -> dict[str, Any]:
    """The gradient that a step sees: plain SGD with rate 1 moves the weights by it."""
    before = state_of(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    config = Training(learning_rate=1.0, max_grad_norm=1e9, max_tokens_per_microbatch=budget)
    rl_step(model, optimizer, batch_of(rows, normalization), config, loss=loss_function(config), step=0)
    return {name: before[name] - tensor for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize("normalization", ["token", "sequence"])
def test_the_gradient_is_that_of_a_loss_written_out_row_by_row(
    fresh_model: Fresh, normalization: str
) -> None:
    reference, rows = fresh_model(), with_engine_logprobs(fresh_model(), make_rows())
    per_rollout: dict[str, list[torch.Tensor]] = {}
    for row in rows:
        per_rollout.setdefault(row.unit, []).append(-row.advantage * by_hand(reference, row)[0])
    rollouts = [torch.cat(parts) for parts in per_rollout.values()]
    if normalization == "token":
        loss = torch.cat(rollouts).mean()
    else:
        loss = torch.stack([terms.mean() for terms in rollouts]).mean()
    loss.backward()
    gradient = gradient_of(fresh_model(), rows, normalization)
    for name, parameter in reference.named_parameters():
        torch.testing.assert_close(gradient[name], parameter.grad, atol=2e-5, rtol=1e-3)


@pytest.mark.parametrize("normalization", ["token", "sequence"])
def test_the_split_into_microbatches_does_not_change_the_gradient(
    fresh_model: Fresh, normalization: str
) -> None:
    rows = with_engine_logprobs(fresh_model(), make_rows())
    whole = gradient_of(fresh_model(), rows, normalization)
    split = gradient_of(fresh_model(), rows, normalization, budget=64)
    for name, value in whole.items():
        torch.testing.assert_close(split[name], value, atol=2e-6, rtol=1e-3)


OPTIONS = [
    Training(max_grad_norm=1e9, updates_per_batch=2),
    Training(max_grad_norm=1e9, updates_per_batch=2, clip_high=0.3, dual_clip=1.2, importance="token"),
    Training(max_grad_norm=1e9, updates_per_batch=2, loss="gspo", normalization="sequence"),
    Training(max_grad_norm=1e9, updates_per_batch=2, loss="cispo", importance="sequence_mask"),
    Training(max_grad_norm=1e9, updates_per_batch=2, loss="sapo", normalization="sequence_sum"),
    Training(
        max_grad_norm=1e9, updates_per_batch=2, loss="dppo", normalization="constant", normalization_length=9
    ),
    Training(max_grad_norm=1e9, updates_per_batch=2, kl_coef=0.1),
]


@pytest.mark.parametrize("config", OPTIONS, ids=lambda config: f"{config.loss} {config.importance}")
def test_no_loss_depends_on_how_many_micro_batches_there_are(fresh_model: Fresh, config: Training) -> None:
    """The first update moves the weights, so that the second has ratios away from 1."""
    rows, moved, n_micro = with_engine_logprobs(fresh_model(), make_rows(8)), [], set()
    if config.kl_coef:
        reference = fresh_model()
        with torch.no_grad():
            reference.get_input_embeddings().weight.mul_(1.05)
    for budget in (10_000, 110, 60, 1):
        model = fresh_model()
        split = config.model_copy(update={"max_tokens_per_microbatch": budget, "learning_rate": 0.05})
        batch = batch_of(rows, config.normalization)
        n_micro.add(len(batch.microbatches(budget)))
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        rl_step(
            model, optimizer, batch, split, loss=loss_function(split), step=0,
            reference=reference if config.kl_coef else None,
        )  # fmt: skip
        moved.append(state_of(model))
    assert len(n_micro) == 4
    for other in moved[1:]:
        for name, value in moved[0].items():
            torch.testing.assert_close(other[name], value, atol=3e-6, rtol=1e-3)


def test_a_kl_to_the_reference_pulls_the_policy_back_and_is_reported(fresh_model: Fresh) -> None:
    rows = with_engine_logprobs(fresh_model(), make_rows())
    reports = []
    for coefficient in (0.0, 5.0):
        model, reference = fresh_model(), fresh_model().requires_grad_(False)
        optimizer = make_optimizer(model, learning_rate=1.0)
        config = Training(learning_rate=3e-3, kl_coef=coefficient)
        for step in range(4):
            result = rl_step(
                model, optimizer, batch_of(rows), config.model_copy(update={"max_logprob_mismatch": 1e9}),
                loss=loss_function(config), step=step, reference=reference,
            )  # fmt: skip
        reports.append(result.metrics["train.kl"])
    assert 0 < reports[1] < 0.5 * reports[0]


def test_the_order_of_rows_changes_the_gradient_by_rounding_only(fresh_model: Fresh) -> None:
    rows = with_engine_logprobs(fresh_model(), make_rows())
    one = gradient_of(fresh_model(), rows, "sequence", budget=64)
    other = gradient_of(fresh_model(), rows[::-1], "sequence", budget=64)
    for name, value in one.items():
        torch.testing.assert_close(other[name], value, atol=2e-6, rtol=1e-3)


def test_the_same_batch_gives_the_same_bits(fresh_model: Fresh) -> None:
    rows = with_engine_logprobs(fresh_model(), make_rows())
    states = []
    for _ in range(2):
        model = fresh_model()
        train(model, rows)
        states.append(state_of(model))
    assert is_same(*states)


def test_one_update_reports_a_ratio_of_exactly_one_and_clips_nothing(fresh_model: Fresh) -> None:
    model = fresh_model()
    rows = with_engine_logprobs(model, make_rows())
    before = state_of(model)
    result = train(model, rows, Training(learning_rate=1e-3, max_tokens_per_microbatch=64))
    metrics = result.metrics
    assert (metrics["train.ratio_mean"], metrics["train.ratio_max"]) == (1.0, 1.0)
    assert (metrics["train.clip_low"], metrics["train.clip_high"]) == (0.0, 0.0)
    assert metrics["train.trainable_tokens"] == sum(sum(row.mask) for row in rows)
    assert metrics["train.nonzero_advantages"] == metrics["train.trainable_tokens"]
    assert metrics["mismatch.max_abs"] < 1e-5
    assert metrics["train.entropy"] == pytest.approx(math.log(278), abs=0.2)
    assert metrics["train.grad_norm"] > 0
    assert metrics["train.learning_rate"] == 1e-3
    assert result.n_optimizer_steps == 1
    assert not is_same(before, state_of(model))


def test_more_updates_measure_the_ratio_against_the_logprobs_before_the_first(fresh_model: Fresh) -> None:
    model = fresh_model()
    rows = with_engine_logprobs(model, make_rows())
    config = Training(learning_rate=2e-3, updates_per_batch=3, warmup_steps=4)
    result = train(model, rows, config)
    assert result.n_optimizer_steps == 3
    assert result.metrics["train.ratio_max"] > 1.05
    assert result.metrics["train.clip_low"] + result.metrics["train.clip_high"] > 0
    assert result.metrics["mismatch.max_abs"] < 1e-5
    assert result.metrics["train.learning_rate"] == pytest.approx(2e-3 * 3 / 4)


def test_tokens_with_positive_advantage_become_likelier_and_others_less_so(fresh_model: Fresh) -> None:
    model = fresh_model()
    rows = with_engine_logprobs(model, make_rows())
    before = [float(by_hand(model, row)[0].detach().sum()) for row in rows]
    train(model, rows)
    gains = [float(by_hand(model, r)[0].detach().sum()) - b for r, b in zip(rows, before, strict=True)]
    assert all(gain * row.advantage > 0 for gain, row in zip(gains, rows, strict=True))


def test_a_gross_mismatch_stops_the_job_before_the_weights_move(fresh_model: Fresh) -> None:
    model = fresh_model()
    rows = with_engine_logprobs(model, make_rows())
    off = [replace(row, behaviour_logprobs=[v - 0.5 * b for v, b in columns(row)]) for row in rows]
    before = state_of(model)
    with pytest.raises(JobFailed, match=r"differ from the engine's by 0\.5.*max_logprob_mismatch = 0\.05"):
        train(model, off)
    assert is_same(before, state_of(model))


def columns(row: Row) -> Any:
    return zip(row.behaviour_logprobs or [], row.mask, strict=True)


def test_scoring_at_another_temperature_than_was_sampled_at_is_caught(fresh_model: Fresh) -> None:
    model = fresh_model()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)  # a policy sharp enough for temperature to matter
    rows = with_engine_logprobs(model, make_rows(temperature=0.5))
    assert train(model, rows).metrics["mismatch.mean_abs"] < 1e-5
    with pytest.raises(JobFailed, match="temperature"):
        train(model, [replace(row, temperature=1.0) for row in rows])


def test_tokens_of_older_versions_do_not_count_for_the_mismatch(fresh_model: Fresh) -> None:
    model = fresh_model()
    rows = [replace(row, is_own_version=[False] * len(row.mask)) for row in make_rows()]
    result = train(model, rows)
    assert result.n_optimizer_steps == 1
    assert not any(name.startswith("mismatch") for name in result.metrics)


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"advantage": 0.0}, "all advantages are zero"), ({"mask": None}, "no trainable token")],
)
def test_nothing_to_learn_means_no_step_though_momentum_and_decay_would_move(
    fresh_model: Fresh, change: dict[str, Any], reason: str
) -> None:
    model = fresh_model()
    rows = with_engine_logprobs(model, make_rows())
    optimizer = make_optimizer(model, learning_rate=1.0, weight_decay=0.1)
    rl_step(model, optimizer, batch_of(rows), CONFIG, loss=loss_function(CONFIG), step=0)
    before = state_of(model)
    empty = [
        replace(row, **change if change.get("mask", 1) else {"mask": [0] * len(row.mask)}) for row in rows
    ]
    result = rl_step(model, optimizer, batch_of(empty), CONFIG, loss=loss_function(CONFIG), step=1)
    assert result.skipped_reason is not None
    assert reason in result.skipped_reason
    assert result.n_optimizer_steps == 0
    assert result.metrics["train.nonzero_advantages"] == 0
    assert is_same(before, state_of(model))


def test_a_nan_in_the_weights_stops_with_a_reason_instead_of_spreading(fresh_model: Fresh) -> None:
    model = fresh_model()
    rows = [replace(row, is_own_version=[False] * len(row.mask)) for row in make_rows()]
    with torch.no_grad():
        model.model.norm.weight[0] = math.nan
    before = state_of(model)["model.embed_tokens.weight"]
    with pytest.raises(JobFailed, match="loss is nan"):
        train(model, rows)
    assert torch.equal(before, state_of(model)["model.embed_tokens.weight"])


def test_stopping_between_microbatches_leaves_the_weights_and_the_next_step_clean(fresh_model: Fresh) -> None:
    class Stop(Exception):
        pass

    calls = []

    def between() -> None:
        calls.append(1)
        if len(calls) == 2:
            raise Stop

    model, untouched = fresh_model(), fresh_model()
    rows = with_engine_logprobs(model, make_rows())
    optimizer = make_optimizer(model, learning_rate=1.0)
    config = Training(learning_rate=1e-3, max_tokens_per_microbatch=64)
    with pytest.raises(Stop):
        rl_step(model, optimizer, batch_of(rows), config, loss=loss_function(config), step=0, between=between)
    assert is_same(state_of(untouched), state_of(model))
    rl_step(model, optimizer, batch_of(rows), config, loss=loss_function(config), step=0)
    rl_step(
        untouched,
        make_optimizer(untouched, learning_rate=1.0),
        batch_of(rows),
        config,
        loss=loss_function(config),
        step=0,
    )
    assert is_same(state_of(untouched), state_of(model))


def test_a_token_that_the_model_does_not_know_names_its_rollout(fresh_model: Fresh) -> None:
    rows = make_rows()
    rows[2] = replace(rows[2], token_ids=[*list(rows[2].token_ids)[:-1], 278])
    with pytest.raises(DataError, match="rollout r1"):
        train(fresh_model(), rows)
