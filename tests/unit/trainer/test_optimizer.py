from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.unit.trainer.conftest import is_same, state_of

from headrace.errors import JobFailed
from headrace_trainer.optimizer import clip_and_step, learning_rate_at, make_optimizer


def test_only_matrices_decay_and_every_parameter_is_optimised_once(fresh_model: Callable[[], Any]) -> None:
    model = fresh_model()
    optimizer = make_optimizer(model, learning_rate=1e-3, weight_decay=0.1)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    decay = {
        names[id(parameter)]: group["weight_decay"]
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    assert decay.keys() == set(names.values())
    assert decay["model.embed_tokens.weight"] == decay["model.norm.weight"] == 0.0
    assert {value for name, value in decay.items() if name.endswith("proj.weight")} == {0.1}


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [0.5, 1, 1, 1, 1, 1]),
        ("linear", [0.5, 1, 1, 0.75, 0.5, 0.25]),
        ("cosine", [0.5, 1, 1, 0.5 + 0.5**1.5, 0.5, 0.5 - 0.5**1.5]),
    ],
)
def test_the_learning_rate_warms_up_and_decays_as_worked_out_by_hand(schedule, expected) -> None:
    rates = [
        learning_rate_at(step, peak=1.0, warmup_steps=2, schedule=schedule, total_steps=6)
        for step in range(1, 7)
    ]
    assert rates == pytest.approx(expected)


def test_a_schedule_never_turns_negative_or_up_again_behind_its_end() -> None:
    for schedule in ("linear", "cosine"):
        late = [learning_rate_at(s, peak=1.0, schedule=schedule, total_steps=3) for s in (4, 5, 99)]
        assert late == pytest.approx([0, 0, 0], abs=1e-12)


def one_weight(gradient: float) -> tuple[torch.nn.Linear, torch.optim.Optimizer]:
    model = torch.nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(1.0)
    model.weight.grad = torch.full_like(model.weight, gradient)
    return model, torch.optim.SGD(model.parameters(), lr=123.0)


def test_the_norm_is_reported_before_clipping_and_the_step_uses_the_clipped_gradient() -> None:
    model, optimizer = one_weight(4.0)
    assert clip_and_step(model, optimizer, learning_rate=0.1, max_grad_norm=2.0) == 4.0
    assert float(model.weight.detach()) == pytest.approx(1 - 0.1 * 2.0, abs=1e-5)
    assert model.weight.grad is None


@pytest.mark.parametrize("gradient", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_fails_the_job_with_the_weights_untouched(gradient: float) -> None:
    model, optimizer = one_weight(gradient)
    with pytest.raises(JobFailed, match="gradient norm"):
        clip_and_step(model, optimizer, learning_rate=0.1, max_grad_norm=1.0)
    assert float(model.weight.detach()) == 1.0


def test_the_first_adam_step_moves_by_the_learning_rate_against_the_sign(
    fresh_model: Callable[[], Any],
) -> None:
    model = fresh_model()
    optimizer = make_optimizer(model, learning_rate=1.0)
    before = state_of(model)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    clip_and_step(model, optimizer, learning_rate=1e-3, max_grad_norm=1e9)
    for name, tensor in state_of(model).items():
        torch.testing.assert_close(before[name] - tensor, torch.full_like(tensor, 1e-3), atol=1e-6, rtol=0)
    assert not is_same(before, state_of(model))
