from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.unit.trainer.conftest import is_same, state_of

from headrace.errors import DataError, JobFailed
from headrace.render import Renderer
from headrace_trainer.optimizer import make_optimizer
from headrace_trainer.sft_data import SftRow, load_conversations, rows_of_step, steps_per_epoch
from headrace_trainer.sft_step import sft_step, validation_loss


def conversation(*turns: tuple[str, str]) -> bytes:
    return json.dumps({"messages": [{"role": role, "content": text} for role, text in turns]}).encode()


TWO_TURNS = conversation(("user", "x+1"), ("assistant", "R"), ("user", "x+0 y-1"), ("assistant", "DD"))
ONE_TURN = conversation(("system", "Walk."), ("user", "y+2"), ("assistant", "UU"))


@pytest.fixture(scope="module")
def renderer(model_folder: Path) -> Renderer:
    return Renderer.load(model_folder)


def test_only_what_the_assistant_says_is_trained_its_stop_token_included(renderer: Renderer) -> None:
    rows = load_conversations(TWO_TURNS + b"\n\n" + ONE_TURN + b"\n", renderer, max_len=200)
    assert [row.line for row in rows] == [1, 3]
    trained = [t for t, bit in zip(rows[0].token_ids, rows[0].mask, strict=True) if bit]
    stop = renderer.encode("<|im_end|>")
    assert trained == [*renderer.encode("R"), *stop, *renderer.encode("DD"), *stop]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (b'{"messages": [', "line 2: not valid JSON"),
        (b'{"prompt": "x"}', "line 2: needs `messages`"),
        (b"[1]", "line 2: needs `messages`"),
        (b'{"messages": []}', "line 2: needs `messages`"),
        (b'{"messages": ["hello"]}', "line 2: "),
        (conversation(("user", "x+1")), "line 2: no assistant tokens"),
        (conversation(("user", "x" * 300), ("assistant", "R")), r"line 2: \d+ tokens, but .* allows 200"),
    ],
)
def test_a_bad_line_is_named(renderer: Renderer, line: bytes, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        load_conversations(ONE_TURN + b"\n" + line, renderer, max_len=200)


def test_an_empty_file_is_refused(renderer: Renderer) -> None:
    with pytest.raises(DataError, match="no conversation"):
        load_conversations(b"\n \n", renderer, max_len=200)


def test_every_epoch_takes_each_row_once_in_an_order_of_its_own() -> None:
    per_epoch = steps_per_epoch(10, 4)
    epochs = [
        [row for step in range(per_epoch) for row in rows_of_step(10, 4, 0, 1 + epoch * per_epoch + step)]
        for epoch in range(2)
    ]
    assert per_epoch == 3
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(10))
    assert epochs[0] != epochs[1]


def made_rows(renderer: Renderer, n: int = 5) -> list[SftRow]:
    lines = [
        conversation(("user", f"x+{k}"), ("assistant", "R" * (k + 1)), ("user", "ok"), ("assistant", "U"))
        for k in range(n)
    ]
    return load_conversations(b"\n".join(lines), renderer, max_len=500)


def step_with(model: Any, rows: list[SftRow], max_tokens: int) -> dict[str, torch.Tensor]:
    before = state_of(model)
    sft_step(
        model,
        torch.optim.SGD(model.parameters(), lr=1.0),
        rows,
        learning_rate=1.0,
        max_grad_norm=1e9,
        max_tokens=max_tokens,
    )
    return {name: before[name] - tensor for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize("max_tokens", [1, 60, 10_000])
def test_the_gradient_is_that_of_the_mean_over_all_assistant_tokens(
    fresh_model: Callable[[], Any], renderer: Renderer, max_tokens: int
) -> None:
    rows, reference = made_rows(renderer), fresh_model()
    terms = []
    for row in rows:
        logits = reference(torch.tensor([row.token_ids])).logits[0]
        losses = F.cross_entropy(logits[:-1], torch.tensor(row.token_ids[1:]), reduction="none")
        terms.append(losses[torch.tensor(row.mask[1:]) > 0])
    torch.cat(terms).mean().backward()
    gradient = step_with(fresh_model(), rows, max_tokens)
    for name, parameter in reference.named_parameters():
        torch.testing.assert_close(gradient[name], parameter.grad, atol=2e-6, rtol=1e-3)


def test_training_lowers_the_loss_that_validation_measures(
    fresh_model: Callable[[], Any], renderer: Renderer
) -> None:
    model, rows = fresh_model(), made_rows(renderer)
    optimizer = make_optimizer(model, learning_rate=1.0)
    start = validation_loss(model, rows, max_tokens=60)
    settings = {"learning_rate": 2e-3, "max_grad_norm": 1.0, "max_tokens": 60}
    first = sft_step(model, optimizer, rows, **settings).metrics
    for _ in range(5):
        sft_step(model, optimizer, rows, **settings)
    assert first["train.loss"] == pytest.approx(start, abs=1e-5)
    assert first["train.tokens"] == sum(sum(row.mask) for row in rows)
    assert first.keys() == {"train.loss", "train.learning_rate", "train.grad_norm", "train.tokens"}
    assert validation_loss(model, rows, max_tokens=10_000) < start - 0.5


def test_a_batch_without_assistant_tokens_takes_no_step(fresh_model: Callable[[], Any]) -> None:
    model = fresh_model()
    before = state_of(model)
    result = sft_step(
        model,
        make_optimizer(model, learning_rate=1.0, weight_decay=0.5),
        [SftRow(1, [1, 2], [0, 0])],
        learning_rate=1.0,
        max_grad_norm=1.0,
        max_tokens=10,
    )
    assert result.n_optimizer_steps == 0
    assert is_same(before, state_of(model))
    with pytest.raises(DataError, match="no assistant token"):
        validation_loss(model, [SftRow(1, [1, 2], [0, 0])], max_tokens=10)


def test_a_loss_that_is_not_finite_fails_the_job(fresh_model: Callable[[], Any], renderer: Renderer) -> None:
    model = fresh_model()
    with torch.no_grad():
        model.model.norm.weight[0] = float("inf")
    with pytest.raises(JobFailed, match="the loss is"):
        step_with(model, made_rows(renderer), 100)


def test_a_row_beyond_the_model_names_its_line(fresh_model: Callable[[], Any]) -> None:
    with pytest.raises(DataError, match="line 9: 1025 tokens exceed the model's 1024"):
        step_with(fresh_model(), [SftRow(9, [1] * 1025, [0] * 1024 + [1])], 100)
