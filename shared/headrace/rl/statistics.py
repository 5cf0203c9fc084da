"""Paired differences with bootstrap intervals; samples of one task seed are one cluster."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum

from headrace.errors import DataError

COVERAGE = 0.95


@dataclass(frozen=True)
class PairedDifference:
    """Treated minus baseline: a mean over clusters and its 95 % percentile bootstrap interval.

    An interval that excludes 0 is evidence of a difference; one cluster has no width.
    """

    mean: float
    low: float
    high: float
    n_clusters: int


def paired_difference(
    baseline: Mapping[int, Sequence[float]],
    treated: Mapping[int, Sequence[float]],
    n_boot: int = 2000,
    seed: int = 0,
) -> PairedDifference:
    """Mean over task seeds of (mean treated - mean baseline), with the seeds resampled.

    Both sides must have samples for the same seeds; DataError names one that differs.

    >>> paired_difference({1: [0.0], 2: [0.0]}, {1: [1.0], 2: [1.0]}).low
    1.0
    """
    if baseline.keys() != treated.keys():
        odd = min(baseline.keys() ^ treated.keys())
        raise DataError(f"seed {odd} was played on one side only; a paired difference needs equal seeds")
    differences = [
        _cluster_mean(task_seed, treated[task_seed]) - _cluster_mean(task_seed, baseline[task_seed])
        for task_seed in sorted(baseline)
    ]
    return PairedDifference(*_bootstrap(differences, n_boot, seed))


def _cluster_mean(task_seed: int, values: Sequence[float]) -> float:
    if not values:
        raise DataError(f"seed {task_seed} has no sample")
    return fsum(values) / len(values)


def _bootstrap(clusters: Sequence[float], n_boot: int, seed: int) -> tuple[float, float, float, int]:
    if not clusters:
        raise DataError("no seed was played, so there is nothing to average")
    n = len(clusters)
    draw = random.Random(seed)
    means = sorted(fsum(draw.choices(clusters, k=n)) / n for _ in range(n_boot))
    tail = (1 - COVERAGE) / 2
    low = means[int(tail * (n_boot - 1))]
    high = means[-1 - int(tail * (n_boot - 1))]
    return fsum(clusters) / n, low, high, n
