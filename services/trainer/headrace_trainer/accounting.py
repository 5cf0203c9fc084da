"""What became of an iteration's rollouts: metrics for people, rows for the ledger. Imports no torch."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence

from headrace.contracts.policy import PolicyVersion
from headrace.contracts.trajectory import Outcome, Trajectory
from headrace.rl.credit import episode_return
from headrace.rl.measures import episode_measures, reward_measures
from headrace.rl.staleness import PolicyHistory
from headrace.store.tables import LedgerEntry
from headrace_trainer.group_book import GroupBook
from headrace_trainer.ownership import OwnedJob


def outcome_counts(book: GroupBook) -> dict[str, int]:
    """planned = scored + policy_failed + infra_failed + cancelled; raises when it does not add up."""
    members = [member for group in book.groups for member in group.members]
    counts = Counter(
        member.trajectory.outcome.value if member.trajectory is not None
        else Outcome.CANCELLED.value if member.dead_reason is None
        else Outcome.INFRA_FAILED.value
        for member in members
    )  # fmt: skip
    if sum(counts.values()) != len(members):
        raise AssertionError(f"{len(members)} rollouts planned, {dict(counts)} accounted for")
    result = {f"rollouts.{outcome.value}": counts[outcome.value] for outcome in Outcome}
    return {"rollouts.planned": len(members), **result}


def versions_of(trajectory: Trajectory) -> list[PolicyVersion]:
    """Policy versions that sampled its tokens, in order of first use."""
    seen: dict[PolicyVersion, None] = {}
    for call in trajectory.calls:
        for span in call.version_spans:
            seen.setdefault(span.version)
    return list(seen)


def rollout_metrics(
    trajectories: Sequence[Trajectory],
    returns: Sequence[float],
    history: PolicyHistory,
    current: PolicyVersion,
) -> dict[str, float]:
    """What an iteration's rewarded trajectories show (`headrace.rl.measures`), and how stale they are."""
    rewards = [episode_return(t.rewards, "outcome") for t in trajectories]
    staleness = [
        max((history.staleness(version, current) for version in versions_of(t)), default=0)
        for t in trajectories
    ]
    return {
        **reward_measures(rewards, returns),
        **episode_measures(trajectories),
        "staleness.mean": statistics.fmean(staleness),
        "staleness.max": max(staleness),
    }


def ledger_entry(
    trajectory: Trajectory,
    *,
    timeline: int,
    step: int | None,
    advantage: float | None,
    n_trainable_tokens: int,
    not_trained_reason: str | None,
) -> LedgerEntry:
    """The ledger's row of one rollout that has a trajectory."""
    versions = sorted(versions_of(trajectory), key=lambda version: (version.timeline, version.n))
    return LedgerEntry(
        job_id=trajectory.job_id,
        rollout_id=trajectory.rollout_id,
        org_id=trajectory.org_id,
        session_id=trajectory.session_id,
        attempt=trajectory.attempt,
        timeline=timeline,
        iteration=trajectory.iteration,
        step=step,
        advantage=advantage,
        n_trainable_tokens=n_trainable_tokens,
        not_trained_reason=not_trained_reason,
        min_version=str(versions[0]) if versions else None,
        max_version=str(versions[-1]) if versions else None,
    )


def unused_entries(book: GroupBook, job: OwnedJob, iteration: int) -> list[LedgerEntry]:
    """Ledger rows of rollouts outside the complete groups: those without a trajectory, those of replaced groups."""
    entries = []
    for group in book.groups:
        for member in group.members:
            if member.trajectory is not None and not group.is_replaced:
                continue
            entries.append(
                LedgerEntry(
                    job_id=job.job_id,
                    rollout_id=member.planned.rollout_id,
                    org_id=job.org_id,
                    session_id=member.trajectory.session_id if member.trajectory else None,
                    timeline=job.timeline,
                    iteration=iteration,
                    attempt=member.attempt or None,
                    not_trained_reason=f"infra_failed: {member.dead_reason}"
                    if member.dead_reason
                    else "its group was replaced",
                )
            )
    return entries
