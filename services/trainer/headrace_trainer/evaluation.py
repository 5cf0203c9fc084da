"""Playing fixed seeds to measure a policy: used by evaluation jobs and inside RL jobs. Imports no torch."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.contracts.trajectory import Trajectory
from headrace.errors import JobFailed
from headrace.ids import rollout_id
from headrace.rl.credit import episode_return
from headrace.rl.measures import episode_measures, mean, nested
from headrace.rl.statistics import paired_difference
from headrace.store.plan import PlannedRollout
from headrace_trainer.collector import Collector
from headrace_trainer.group_book import GroupBook
from headrace_trainer.intake import Intake
from headrace_trainer.orders import OrderTemplate

_TOLD = ("turns.mean", "tokens.sampled", "rollouts.truncated_share", "stops.length_share")
"""Measures that the report has under names of its own."""


@dataclass(frozen=True)
class Report:
    """What an evaluation found; `per_seed` lists the return of each episode, in order of sample."""

    n: int
    mean_return: float
    success: float
    """Share of episodes with at least the job's `success_at`."""
    per_seed: dict[int, list[float]]
    std_return: float
    calls: int
    """Answered calls to the policy."""
    measures: dict[str, float]
    """What the episodes show beside their rewards, as `headrace.rl.measures.episode_measures` names it."""

    def to_json(self) -> dict[str, Any]:
        return {
            "n": self.n,
            "mean_return": self.mean_return,
            "std_return": self.std_return,
            "success": self.success,
            "per_seed": {str(seed): returns for seed, returns in self.per_seed.items()},
            "mean_turns": self.measures["turns.mean"],
            "calls": self.calls,
            "sampled_tokens": int(self.measures["tokens.sampled"]),
            "truncated_share": self.measures["rollouts.truncated_share"],
            "length_stop_share": self.measures.get("stops.length_share"),
            **nested({name: value for name, value in self.measures.items() if name not in _TOLD}),
        }

    def metrics(self) -> dict[str, float]:
        """The metrics of an evaluation, all under `eval.`."""
        return {
            "eval.reward_mean": self.mean_return,
            "eval.reward_std": self.std_return,
            "eval.success": self.success,
            "eval.n": float(self.n),
            **{f"eval.{name}": value for name, value in self.measures.items()},
        }


def play(
    intake: Intake,
    template: OrderTemplate,
    seeds: Sequence[int],
    samples: int,
    *,
    max_attempts: int,
    max_concurrent: int,
    on_progress: Callable[[int, int], None] = lambda n_ended, n_planned: None,
) -> list[Trajectory]:
    """Play each seed `samples` times and return every trajectory; raises JobFailed when some cannot be had.

    A seed that keeps failing is never replaced by another: the comparison needs the same seeds.
    """

    book = GroupBook(n_wanted=len(seeds), min_members=0, max_attempts=max_attempts)
    collector = Collector(
        intake,
        template,
        book,
        plan_group=lambda index: _group(template, index, seeds[index], samples),
        max_concurrent=max_concurrent,
        on_progress=on_progress,
    )
    groups = collector.collect()
    intake.leftovers += collector.entry_ids
    missing = book.dead()
    if missing:
        raise JobFailed(
            f"{len(missing)} of {len(seeds) * samples} evaluation episodes could not be played: "
            f"{missing[0].dead_reason}"
        )
    return [m.trajectory for group in groups for m in group.members if m.trajectory is not None]


def _group(template: OrderTemplate, index: int, seed: int, samples: int) -> list[PlannedRollout]:
    ids = (
        rollout_id(template.job_id, template.purpose, template.iteration, index, member)
        for member in range(samples)
    )
    return [PlannedRollout(name, index, member, seed) for member, name in enumerate(ids)]


def report(trajectories: Sequence[Trajectory], success_at: float) -> Report:
    """Summarise episodes; the return of an evaluation is the outcome reward."""
    per_seed: dict[int, list[float]] = {}
    for trajectory in trajectories:
        per_seed.setdefault(trajectory.seed, []).append(episode_return(trajectory.rewards, "outcome"))
    returns = [value for values in per_seed.values() for value in values]
    return Report(
        n=len(returns),
        mean_return=mean(returns),
        std_return=statistics.pstdev(returns),
        success=statistics.fmean(value >= success_at for value in returns),
        per_seed=per_seed,
        calls=sum(call.error is None for t in trajectories for call in t.calls),
        measures=episode_measures(trajectories),
    )


def difference_to(
    baseline_job_id: str, baseline: dict[str, Any], treated: Report, success_at: float
) -> dict[str, Any]:
    """Paired difference in success over the seeds that both played, with a 95 % interval clustered by seed."""

    def successes(returns: Sequence[float]) -> list[float]:
        return [float(value >= success_at) for value in returns]

    before = {int(seed): successes(returns) for seed, returns in baseline["per_seed"].items()}
    after = {seed: successes(returns) for seed, returns in treated.per_seed.items()}
    shared = before.keys() & after.keys()
    found = paired_difference({s: before[s] for s in shared}, {s: after[s] for s in shared})
    return {
        "baseline_job": baseline_job_id,
        "of": "success",
        "mean": found.mean,
        "low": found.low,
        "high": found.high,
        "n_clusters": found.n_clusters,
    }
