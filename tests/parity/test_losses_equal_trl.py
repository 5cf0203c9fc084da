from __future__ import annotations

import pytest
import torch
from tests.parity.cases import NUMPY_CASES, TRL_CASES, worst_error

pytestmark = pytest.mark.slow  # importing TRL alone takes longer than the whole comparison


@pytest.mark.parametrize("name", [*TRL_CASES])
def test_loss_and_gradient_equal_trls(name: str) -> None:
    assert worst_error(name, 40, torch.float64) <= 1e-6
    assert worst_error(name, 40, torch.float32) <= 1e-5


@pytest.mark.parametrize("name", [*NUMPY_CASES])
def test_loss_and_gradient_equal_the_formula_in_numpy(name: str) -> None:
    assert worst_error(name, 40, torch.float64) <= 1e-6
