from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from tests.fakes.trajectories import VERSION, make_call, make_trajectory
from tests.unit.trainer.conftest import batch_of, make_rows

from headrace.contracts.policy import PolicyVersion, VersionSpan
from headrace.errors import DataError
from headrace.rl.sequences import sequences_of
from headrace_trainer.batch import Row, TrainingBatch


def row(*mask: int, **changes) -> Row:
    fields = {"source": "rollout r", "unit": "r", "token_ids": list(range(len(mask))), "mask": list(mask)}
    return Row(**fields | changes)


def test_each_trained_token_comes_with_its_own_columns() -> None:
    batch = batch_of(
        [
            row(0, 1, 0, 1, behaviour_logprobs=[0, -1, 0, -3], is_own_version=[0, 1, 0, 0], advantage=2.0),
            row(0, 1, token_ids=[7, 8], behaviour_logprobs=[0, -4], temperature=0.5, unit="s"),
        ]
    )
    (micro,) = batch.microbatches(100)
    assert micro.token_ids_BT.tolist() == [[7, 8, 0, 0], [0, 1, 2, 3]]
    assert micro.row_N.tolist() == [0, 1, 1]
    assert micro.position_N.tolist() == [1, 1, 3]
    assert micro.target_N.tolist() == [8, 1, 3]
    assert micro.behaviour_logprobs_N.tolist() == [-4, -1, -3]
    assert micro.is_own_version_N.tolist() == [False, True, False]
    assert micro.advantages_N.tolist() == [0, 2, 2]
    assert micro.temperature_N.tolist() == [0.5, 1, 1]
    assert micro.weights_N.tolist() == pytest.approx([1 / 3] * 3)


def test_no_microbatch_exceeds_the_budget_unless_one_rollout_alone_does() -> None:
    rows = [row(*[0] * (n - 1), 1, unit=f"r{i}") for i, n in enumerate((9, 3, 3, 40, 9, 3))]
    shapes = [tuple(micro.token_ids_BT.shape) for micro in batch_of(rows).microbatches(20)]
    assert shapes == [(3, 3), (2, 9), (1, 40)]


def test_the_split_keeps_every_token_and_the_weights_of_the_whole_batch() -> None:
    batch = batch_of(make_rows(12), "sequence")
    micros = batch.microbatches(60)
    assert len(micros) > 2
    assert sum(micro.n_trainable for micro in micros) == batch.n_trainable
    assert math.fsum(float(micro.weights_N.double().sum()) for micro in micros) == pytest.approx(1, abs=1e-6)


def test_an_advantage_per_token_reaches_its_token_and_nothing_at_masked_positions_is_read() -> None:
    nan, inf = math.nan, math.inf
    one = row(
        0, 1, 0, 1, advantage=[nan, 1.0, inf, -2.0], behaviour_logprobs=[nan, -1, inf, -3],
        is_own_version=[True, True, True, False],
    )  # fmt: skip
    (micro,) = batch_of([one]).microbatches(10)
    assert micro.advantages_N.tolist() == [1, -2]
    assert micro.behaviour_logprobs_N.tolist() == [-1, -3]
    assert micro.is_own_version_N.tolist() == [True, False]
    assert batch_of([one]).n_nonzero_advantages == 2


def test_the_rows_of_one_rollout_share_a_micro_batch_and_its_number() -> None:
    rows = [row(*[0] * 9, 1), row(0, 1, unit="s"), row(0, 1, 1), row(0, 1, unit="t")]
    first, second = batch_of(rows).microbatches(12)
    assert (first.n_rollouts, first.rollout_N.tolist()) == (2, [0, 1])
    assert (second.n_rollouts, second.rollout_N.tolist()) == (1, [0, 0, 0])
    assert tuple(second.token_ids_BT.shape) == (2, 10)


def test_bnpo_weighs_each_micro_batch_by_its_own_tokens() -> None:
    rows = [row(0, 1), row(0, 1, 1, 1, unit="s"), row(*[0] * 20, 1, 1, unit="t")]
    first, second = batch_of(rows, "microbatch").microbatches(20)
    assert first.weights_N.tolist() == pytest.approx([1 / 8] * 4)
    assert second.weights_N.tolist() == pytest.approx([1 / 4] * 2)


def test_advantages_by_call_reach_the_tokens_of_the_call() -> None:
    trajectory = make_trajectory(make_call(0, [1, 2], [3, 4]), make_call(1, [5], [6], parent=0))
    (sequence,) = sequences_of(trajectory)
    batch = TrainingBatch.of_rollouts(
        [(sequence, {0: 0.5, 1: -1.0})],
        normalization="token",
        max_model_len=100,
        is_own_version=lambda _: True,
    )
    (micro,) = batch.microbatches(100)
    assert micro.advantages_N.tolist() == [0.5, 0.5, -1.0]
    with pytest.raises(DataError, match="call 1 was given no advantage"):
        TrainingBatch.of_rollouts(
            [(sequence, {0: 0.5})], normalization="token", max_model_len=100, is_own_version=lambda _: True
        )


def test_rows_without_trained_tokens_take_no_part() -> None:
    batch = batch_of([row(0, 0, 0), row(0, 1)])
    (micro,) = batch.microbatches(100)
    assert tuple(micro.token_ids_BT.shape) == (1, 2)
    assert batch_of([row(0, 0)]).microbatches(10) == []


def test_trainable_tokens_and_those_with_an_advantage_are_counted() -> None:
    batch = batch_of([row(0, 1, 1, advantage=0.0), row(0, 1, advantage=-1.0), row(0, 0, advantage=3.0)])
    assert (batch.n_trainable, batch.n_nonzero_advantages) == (3, 1)


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (row(0, 0, 1, 1, 1), "rollout r: 5 tokens exceed the model's 4"),
        (row(0, 1, token_ids=[1]), "1 tokens but 2 mask entries"),
        (row(1, 1), "no token precedes it"),
        (row(0, 1, advantage=math.nan), "advantage is nan"),
        (row(0, 1, advantage=[0.0]), "2 tokens but 1 advantages"),
        (row(0, 1, behaviour_logprobs=[0.0, math.inf]), "no finite logprob"),
        (row(0, 1, behaviour_logprobs=[0.0]), "2 tokens but 1 logprobs"),
        (row(0, 1, temperature=0.0), "temperature is 0.0"),
    ],
)
def test_a_row_that_cannot_be_trained_on_is_named(bad: Row, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        batch_of([bad], max_model_len=4)


def test_a_token_outside_the_vocabulary_is_named_before_the_embedding_fails() -> None:
    with pytest.raises(DataError, match="rollout r: a token id"):
        batch_of([row(0, 1, token_ids=[1, 278])]).refuse_unknown_tokens(278)


def test_sequences_become_rows_and_only_own_versions_count_for_the_mismatch() -> None:
    newer = PolicyVersion(timeline=1, n=1)
    spans = (VersionSpan(version=VERSION, start=0, end=1), VersionSpan(version=newer, start=1, end=3))
    trajectory = make_trajectory(
        make_call(0, [1, 2], [3, 4, 5], version_spans=spans, temperature=0.7), rollout_id="job.train.i0.g1.m2"
    )
    (sequence,) = sequences_of(trajectory)
    batch = TrainingBatch.of_rollouts(
        [(sequence, 1.5)],
        normalization="token",
        max_model_len=10,
        is_own_version=lambda version: version == newer,
    )
    (micro,) = batch.microbatches(10)
    assert micro.is_own_version_N.tolist() == [False, True, True]
    assert torch.equal(micro.temperature_N, torch.full((3,), 0.7))
    assert micro.behaviour_logprobs_N.tolist() == pytest.approx([-1.0, -1.1, -1.2])
    assert micro.advantages_N.tolist() == [1.5] * 3
    with pytest.raises(DataError, match=r"job\.train\.i0\.g1\.m2: 5 tokens exceed"):
        TrainingBatch.of_rollouts(
            [(sequence, 1.5)], normalization="token", max_model_len=4, is_own_version=lambda version: True
        )


def test_the_split_depends_on_lengths_and_order_alone() -> None:
    rows = make_rows(9)
    one = batch_of(rows).microbatches(64)
    other = batch_of([replace(r, advantage=r.advantage + 1) for r in rows]).microbatches(64)
    assert all(torch.equal(a.token_ids_BT, b.token_ids_BT) for a, b in zip(one, other, strict=True))
