from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.unit.trainer.conftest import batch_of, make_rows

from headrace_trainer.batch import Row
from headrace_trainer.logprobs import sampled_logprobs


def by_hand(model: Any, row: Row) -> tuple[torch.Tensor, torch.Tensor]:
    """Logprobs and entropies of a row's trained tokens from the model's full logits, one row alone."""
    logits = model(torch.tensor([list(row.token_ids)])).logits[0].double() / row.temperature
    logp = torch.log_softmax(logits, dim=1)
    trained = [t for t, bit in enumerate(row.mask) if bit]
    return (
        torch.stack([logp[t - 1, row.token_ids[t]] for t in trained]),
        torch.stack([-(logp[t - 1].exp() * logp[t - 1]).sum() for t in trained]),
    )


def in_order_of_rollouts(rows: list[Row]) -> list[Row]:
    """As micro-batches take them: rollouts by their longest row, each with its rows together."""
    rollouts: dict[str, list[Row]] = {}
    for row in rows:
        rollouts.setdefault(row.unit, []).append(row)
    by_length = sorted(rollouts.values(), key=lambda one: max(len(row.token_ids) for row in one))
    return [row for one in by_length for row in one]


@pytest.mark.parametrize("budget", [1, 40, 10_000])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_padded_rows_give_the_values_of_each_row_alone(
    fresh_model: Callable[[], Any], budget: int, temperature: float
) -> None:
    model, rows = fresh_model(), make_rows(temperature=temperature)
    with torch.no_grad():
        parts = [sampled_logprobs(model, m, with_entropy=True) for m in batch_of(rows).microbatches(budget)]
        expected = [by_hand(model, row) for row in in_order_of_rollouts(rows)]
    logprobs = torch.cat([part[0] for part in parts])
    entropies = torch.cat([part[1] for part in parts if part[1] is not None])
    assert logprobs.dtype == torch.float32
    torch.testing.assert_close(logprobs.double(), torch.cat([e[0] for e in expected]), atol=1e-5, rtol=0)
    torch.testing.assert_close(entropies.double(), torch.cat([e[1] for e in expected]), atol=1e-5, rtol=0)


def test_rows_of_different_temperatures_share_a_microbatch(fresh_model: Callable[[], Any]) -> None:
    model = fresh_model()
    cold, hot = (replace(make_rows()[3], temperature=t) for t in (0.25, 2.0))
    with torch.no_grad():
        (micro,) = batch_of([cold, hot]).microbatches(1000)
        values = sampled_logprobs(model, micro)[0].double()
        expected = torch.cat([by_hand(model, cold)[0], by_hand(model, hot)[0]])
    torch.testing.assert_close(values, expected, atol=1e-5, rtol=0)


def test_chunks_change_neither_values_nor_gradients(fresh_model: Callable[[], Any], rows: list[Row]) -> None:
    gradients, values = [], []
    for chunk in (3, 10_000):
        model = fresh_model()
        (micro,) = batch_of(rows).microbatches(10_000)
        logprobs, entropy = sampled_logprobs(model, micro, with_entropy=True, chunk=chunk)
        assert entropy is not None
        assert not entropy.requires_grad
        (logprobs * micro.advantages_N).sum().backward()
        values.append(logprobs.detach())
        gradients.append({name: p.grad for name, p in model.named_parameters()})
    torch.testing.assert_close(values[0], values[1], atol=1e-6, rtol=0)
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][name], atol=1e-5, rtol=1e-4)


def test_only_trained_positions_reach_the_head(fresh_model: Callable[[], Any], rows: list[Row]) -> None:
    model, seen = fresh_model(), []
    model.get_output_embeddings().register_forward_hook(lambda _m, inputs, _o: seen.append(inputs[0].shape))
    (micro,) = batch_of(rows).microbatches(10_000)
    sampled_logprobs(model, micro, chunk=7)
    assert sum(shape[0] for shape in seen) == micro.n_trainable < micro.token_ids_BT.numel()
    assert max(shape[0] for shape in seen) == 7


def test_what_lies_behind_or_beside_a_token_does_not_reach_it(fresh_model: Callable[[], Any]) -> None:
    model = fresh_model()
    base = make_rows()[2]
    bare = replace(base, behaviour_logprobs=None, is_own_version=None)
    longer = replace(bare, token_ids=[*base.token_ids, 1, 2, 3], mask=[*base.mask, 0, 0, 0])
    other = replace(make_rows()[4], token_ids=[9] * len(make_rows()[4].token_ids))
    with torch.no_grad():
        (micro,) = batch_of([longer, other]).microbatches(1000)
        mine = micro.row_N == int(len(longer.mask) > len(other.mask))
        values = sampled_logprobs(model, micro)[0][mine].double()
    torch.testing.assert_close(values, by_hand(model, base)[0], atol=1e-5, rtol=0)
