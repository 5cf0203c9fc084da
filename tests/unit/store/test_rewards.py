from __future__ import annotations

import math
from typing import Any

import pytest

from headrace.store.rewards import MAX_KEYS, EventRate, iteration_rewards
from headrace.store.session import Store
from headrace.store.tables import EventRewardRow, Rollout


def rollout(iteration: int, member: int, reward: float | None, **changes: Any) -> Rollout:
    name = f"{changes.get('job_id', 'j')}.{changes.get('purpose', 'train')}.i{iteration}.m{member}"
    fields: dict[str, Any] = {
        "rollout_id": name, "org_id": "local", "job_id": "j", "purpose": "train", "iteration": iteration,
        "group_index": 0, "member": member, "seed": 0, "timeline": 1, "status": "scored",
        "session_id": f"trace_{name}", "outcome_reward": reward, "event_reward_sum": 0.0,
    }  # fmt: skip
    return Rollout(**(fields | changes))


def events(of: Rollout, *pairs: tuple[str, float], session_id: str | None = None) -> list[EventRewardRow]:
    return [
        EventRewardRow(
            session_id=session_id or str(of.session_id), position=position, org_id=of.org_id, job_id=of.job_id,
            rollout_id=of.rollout_id, turn=0, key=key, value=value, type="sparse",
        )
        for position, (key, value) in enumerate(pairs)
    ]  # fmt: skip


def read(store: Store, **how: Any):
    given: dict[str, Any] = {"purpose": "train", "after_step": -1, "limit": 100} | how
    with store.read() as session:
        return iteration_rewards(session, "local", "j", **given)


def test_rewards_and_events_of_accepted_attempts_are_summed_up_by_iteration(store: Store) -> None:
    a, b = rollout(1, 0, 1.0, event_reward_sum=0.75), rollout(1, 1, 0.0, event_reward_sum=0.25)
    with store.write() as session:
        session.add_all([a, b, rollout(1, 2, None, status="infra_failed"), rollout(2, 0, 0.5)])
        session.add_all(events(a, ("wood", 0.5), ("wood", 0.25)) + events(b, ("wood", 0.25), ("fell", 0.0)))
        session.add_all(events(a, ("never", 9.0), session_id="trace_of_an_earlier_attempt"))
    (first, second), has_more = read(store)
    assert not has_more
    assert (first.iteration, first.n, first.reward_mean, first.std) == (1, 2, 0.5, 0.5)
    assert (first.min, first.max, first.return_mean) == (0.0, 1.0, 0.5)
    assert first.events == {"wood": EventRate(1.0, 0.5), "fell": EventRate(0.5, 0.0)}
    assert (second.iteration, second.n, second.std, second.events) == (2, 1, 0.0, {})
    (first, _), _ = read(store, with_events_in_return=True)
    assert (first.reward_mean, first.return_mean) == (0.5, 1.0)


def test_other_organisations_jobs_and_purposes_are_left_out(store: Store) -> None:
    with store.write() as session:
        session.add_all(
            [rollout(1, 0, 1.0), rollout(1, 0, 9.0, purpose="eval"), rollout(1, 0, 9.0, job_id="k")]
        )
        session.add(rollout(1, 5, 9.0, org_id="charlie"))
    assert [row.reward_mean for row in read(store)[0]] == [1.0]
    assert [row.reward_mean for row in read(store, purpose="eval")[0]] == [9.0]


def test_a_page_holds_whole_iterations_behind_the_cursor(store: Store) -> None:
    with store.write() as session:
        session.add_all([rollout(i, member, float(i)) for i in range(1, 6) for member in range(3)])
    rows, has_more = read(store, limit=2)
    assert ([(row.iteration, row.n) for row in rows], has_more) == ([(1, 3), (2, 3)], True)
    rows, has_more = read(store, after_step=3, limit=2)
    assert ([row.iteration for row in rows], has_more) == ([4, 5], False)
    assert read(store, after_step=5) == ([], False)


def test_the_spread_of_large_rewards_keeps_its_digits(store: Store) -> None:
    with store.write() as session:
        session.add_all([rollout(1, n, 1e9 + n) for n in range(3)])
    [row], _ = read(store)
    assert row.std == pytest.approx(math.sqrt(2 / 3))


def test_keys_beyond_the_bound_are_other_and_long_ones_are_cut(store: Store) -> None:
    a, b = rollout(1, 0, 1.0), rollout(1, 1, 1.0)
    rare = [(f"rare {n:03}", 1.0) for n in range(60)]
    with store.write() as session:
        session.add_all([a, b])
        session.add_all(events(a, *rare, ("k" * 5000, 1.0)) + events(b, ("k" * 5000, 1.0), ("other", 4.0)))
    [row], _ = read(store)
    assert len(row.events) == MAX_KEYS + 1
    assert row.events["k" * 80] == EventRate(1.0, 1.0)
    assert row.events["other"] == EventRate(1.0, (11 * 1.0 + 4.0) / 2)
