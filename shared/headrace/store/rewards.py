"""Rewards by iteration, summed up by the database from the stored rewards of accepted attempts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Select, case, func, select
from sqlmodel import Session, col

from headrace.store.tables import EventRewardRow, Rollout

MAX_KEYS = 50
MAX_KEY_LENGTH = 80
OTHER = "other"
"""Takes the events of an iteration beyond its `MAX_KEYS` most frequent keys."""


@dataclass(frozen=True)
class EventRate:
    frequency: float
    """Share of the iteration's rewarded episodes in which it happened at least once."""
    mean: float
    """Sum of its values in an episode, averaged over all rewarded episodes."""


@dataclass(frozen=True)
class IterationRewards:
    iteration: int
    n: int
    """Rewarded episodes, those of replaced groups included."""
    reward_mean: float
    """Of the outcome rewards, like `std`, `min` and `max`."""
    return_mean: float
    std: float
    min: float
    max: float
    events: dict[str, EventRate] = field(default_factory=dict)


def iteration_rewards(
    session: Session,
    org_id: str,
    job_id: str,
    *,
    purpose: str,
    after_step: int,
    limit: int,
    with_events_in_return: bool = False,
) -> tuple[list[IterationRewards], bool]:
    """At most `limit` whole iterations behind `after_step`, and whether there are more.

    The return is the outcome reward, with the event rewards added where the job's credit says so.
    """
    of_job = (
        col(Rollout.org_id) == org_id,
        col(Rollout.job_id) == job_id,
        col(Rollout.purpose) == purpose,
        col(Rollout.outcome_reward).is_not(None),
    )
    found = session.execute(_sums(of_job, after_step, with_events_in_return).limit(limit + 1)).all()
    page = found[:limit]
    if not page:
        return [], False
    events: dict[int, dict[str, EventRate]] = {}
    n_of = {row.iteration: row.n for row in page}
    for row in session.execute(_events(of_job, page[0].iteration, page[-1].iteration)):
        rate = EventRate(row.n_episodes / n_of[row.iteration], row.total / n_of[row.iteration])
        events.setdefault(row.iteration, {})[row.name] = rate
    return [_iteration(row, events.get(row.iteration, {})) for row in page], len(found) > limit


def _iteration(row: Any, events: dict[str, EventRate]) -> IterationRewards:
    return IterationRewards(
        iteration=row.iteration,
        n=row.n,
        reward_mean=row.mean,
        return_mean=row.return_mean,
        std=math.sqrt(max(0.0, row.variance)),
        min=row.min,
        max=row.max,
        events=events,
    )


def _sums(of_job: Sequence[Any], after_step: int, with_events: bool) -> Select[*tuple[Any, ...]]:
    """Two passes, mean first: a variance from sums of squares loses its digits where rewards are large."""
    reward = col(Rollout.outcome_reward)
    value = reward + func.coalesce(col(Rollout.event_reward_sum), 0.0) if with_events else reward
    means = (
        select(col(Rollout.iteration).label("iteration"), func.avg(reward).label("mean"))
        .where(*of_job, col(Rollout.iteration) > after_step)
        .group_by(col(Rollout.iteration))
        .subquery()
    )
    gap = reward - means.c.mean
    return (
        select(
            means.c.iteration,
            means.c.mean,
            func.count().label("n"),
            func.avg(value).label("return_mean"),
            func.avg(gap * gap).label("variance"),
            func.min(reward).label("min"),
            func.max(reward).label("max"),
        )
        .join(means, means.c.iteration == col(Rollout.iteration))
        .where(*of_job)
        .group_by(means.c.iteration, means.c.mean)
        .order_by(means.c.iteration)
    )


def _events(of_job: Sequence[Any], first: int, last: int) -> Select[*tuple[Any, ...]]:
    """Per iteration and key: in how many episodes it happened, and the sum of its values."""
    key = func.substr(col(EventRewardRow.key), 1, MAX_KEY_LENGTH)
    episodes = (
        select(
            col(Rollout.iteration).label("iteration"),
            col(Rollout.rollout_id).label("rollout_id"),
            key.label("key"),
            func.sum(col(EventRewardRow.value)).label("value"),
        )
        .join(EventRewardRow, col(EventRewardRow.session_id) == col(Rollout.session_id))
        .where(*of_job, col(Rollout.iteration).between(first, last))
        .group_by(col(Rollout.iteration), col(Rollout.rollout_id), key)
        .cte("episodes")
    )
    order = (func.count().desc(), episodes.c.key)
    ranks = (
        select(
            episodes.c.iteration,
            episodes.c.key,
            func.row_number().over(partition_by=episodes.c.iteration, order_by=order).label("rank"),
        )
        .where(episodes.c.key != OTHER)
        .group_by(episodes.c.iteration, episodes.c.key)
        .cte("ranks")
    )
    name = case((ranks.c.rank <= MAX_KEYS, episodes.c.key), else_=OTHER)
    is_same = (ranks.c.iteration == episodes.c.iteration) & (ranks.c.key == episodes.c.key)
    return (
        select(
            episodes.c.iteration,
            name.label("name"),
            func.count(episodes.c.rollout_id.distinct()).label("n_episodes"),
            func.sum(episodes.c.value).label("total"),
        )
        .select_from(episodes)
        .join(ranks, is_same, isouter=True)
        .group_by(episodes.c.iteration, name)
        .order_by(episodes.c.iteration, func.count(episodes.c.rollout_id.distinct()).desc(), name)
    )
