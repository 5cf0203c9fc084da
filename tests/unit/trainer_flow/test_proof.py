"""A checkpoint's proof: engines that serve its weights pass, others do not."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from headrace.contracts.base import logprobs, token_ids
from headrace.contracts.policy import PolicyVersion, ProbeResult
from headrace.errors import JobFailed
from headrace_trainer.proof import Proof, gap

PROOF = Proof(prompt_ids=[1, 2], sampled_ids=[5, 6, 7], logprobs=[-0.5, -1.0, -2.0])


def answer(sampled: list[int], cold: list[float], cached: list[float] | None = None) -> ProbeResult:
    return ProbeResult(
        version=PolicyVersion(timeline=1, n=0),
        sampled_ids=token_ids(sampled),
        cold_logprobs=logprobs(cold),
        cached_logprobs=logprobs(cold if cached is None else cached),
    )


def test_the_same_answer_passes_and_the_largest_difference_is_reported():
    assert PROOF.check(answer([5, 6, 7], [-0.5, -1.00005, -2.0]), 1e-4) == pytest.approx(5e-5)


@pytest.mark.parametrize(
    ("cold", "cached"),
    [
        ([-0.6, -1.0, -2.0], None),
        ([-0.5, -1.0, -2.0], [-0.5, -1.0, -3.0]),
        ([float("nan"), -1.0, -2.0], None),
    ],
)
def test_other_weights_a_stale_cache_or_no_number_fail(cold: list[float], cached: list[float] | None):
    with pytest.raises(JobFailed, match="does not serve the checkpoint's weights"):
        PROOF.check(answer([5, 6, 7], cold, cached), 1e-4)


def test_an_engine_that_stopped_early_is_held_to_what_it_said():
    assert PROOF.check(answer([5], [-0.5]), 1e-4) == 0
    with pytest.raises(JobFailed):
        PROOF.check(answer([], []), 1e-4)


def test_a_tie_broken_the_other_way_passes_and_a_likelier_other_token_fails():
    assert PROOF.check(answer([5, 9, 1], [-0.5, -1.0, -7.0]), 1e-4) == 0
    with pytest.raises(JobFailed):
        PROOF.check(answer([5, 9, 1], [-0.5, -0.8, -7.0]), 1e-4)


def test_it_survives_the_file(tmp_path: Path):
    PROOF.write(tmp_path)
    assert Proof.read(tmp_path) == PROOF
    assert Proof.read(tmp_path / "elsewhere") is None


def test_the_gap_is_the_largest_over_all_columns():
    assert gap([[-1.0, -2.0], [-1.0, -2.5]], [-1.25, -2.0]) == 0.5


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ([[-1.0, -1.0], [-1.0, math.nan]], [-1.0, -1.0]),
        ([[-1.0], [-1.0]], [math.nan]),
        ([[-1.0], [-1.0]], [-1.0, -2.0]),
        ([[-1.0], []], [-1.0]),
        ([[], []], []),
    ],
)
def test_what_cannot_be_compared_is_no_agreement(columns: list[list[float]], expected: list[float]):
    assert gap(columns, expected) == math.inf


def test_a_nan_anywhere_fails_the_proof():
    with pytest.raises(JobFailed):
        PROOF.check(answer([5, 6, 7], [-0.5, float("nan"), -2.0]), 1e-4)
