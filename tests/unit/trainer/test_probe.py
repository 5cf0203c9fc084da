from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from headrace.errors import ConfigError
from headrace_trainer.probe import probe_prompt, score


def test_the_prompt_is_fixed_within_the_vocabulary_and_longer_than_two_cache_blocks() -> None:
    prompt = probe_prompt(278, max_model_len=512)
    assert len(prompt) > 2 * 128
    assert prompt == probe_prompt(278, max_model_len=512)
    assert 0 <= min(prompt) <= max(prompt) < 278


def test_a_short_context_gets_the_longest_prompt_that_leaves_room_for_the_answer() -> None:
    assert len(probe_prompt(278, max_model_len=100, n_tokens=8)) == 92
    with pytest.raises(ConfigError, match="max_model_len = 8"):
        probe_prompt(278, max_model_len=8, n_tokens=8)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_scores_are_the_logprobs_of_a_plain_forward_pass(
    fresh_model: Callable[[], Any], temperature: float
) -> None:
    model, prompt, sampled = fresh_model(), [5, 6, 7, 8], [9, 10, 11]
    with torch.no_grad():
        logits = model(torch.tensor([prompt + sampled])).logits[0].double() / temperature
    logp = torch.log_softmax(logits, dim=1)
    expected = [float(logp[3 + k, token]) for k, token in enumerate(sampled)]
    assert list(score(model, prompt, sampled, temperature)) == pytest.approx(expected, abs=1e-5)


def test_other_weights_give_another_score(fresh_model: Callable[[], Any]) -> None:
    model = fresh_model()
    prompt = probe_prompt(278, max_model_len=512)
    before = score(model, prompt, [1, 2, 3])
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.weight.mul_(1.1)
    after = score(model, prompt, [1, 2, 3])
    assert max(abs(a - b) for a, b in zip(before, after, strict=True)) > 1e-5
