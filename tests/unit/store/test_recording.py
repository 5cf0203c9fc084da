from __future__ import annotations

from typing import Any

import pytest
from sqlmodel import select
from tests.fakes.trajectories import make_call, make_trajectory

from headrace.contracts.policy import PolicyVersion, VersionSpan
from headrace.contracts.trajectory import EventReward, Outcome, Rewards, Trajectory
from headrace.store.recording import Recorded, record
from headrace.store.session import Store
from headrace.store.tables import Attempt, EventRewardRow, OutcomeRewardRow, Rollout, Trace


def scored(**changes: Any) -> Trajectory:
    spans = (
        VersionSpan(version=PolicyVersion(timeline=1, n=2), start=0, end=1),
        VersionSpan(version=PolicyVersion(timeline=1, n=10), start=1, end=3),
    )
    call = make_call(0, [1, 2], [3, 4, 5], version_spans=spans, reply={"role": "assistant", "content": "U"})
    events = (EventReward(turn=0, call=0, value=0.25), EventReward(turn=1, call=0, value=0.5))
    rewards = Rewards(outcome_reward=1.0, event_rewards=events, source="metrics.outcome_score")
    return make_trajectory(call).model_copy(update={"rewards": rewards, **changes})


def write(store: Store, *items: tuple[Trajectory, str], kept: bool = False) -> None:
    recorded = [Recorded(trajectory, verdict, "path", "sha") for trajectory, verdict in items]
    with store.write() as session:
        record(session, recorded, lambda _rollout, _session: kept)


def plan(store: Store, timeline: int = 1) -> None:
    with store.write() as session:
        session.add(
            Rollout(
                rollout_id="job_1.train.i0.g0.m0", org_id="local", job_id="job_1", purpose="train",
                iteration=0, group_index=0, member=0, seed=0, timeline=timeline,
            )
        )  # fmt: skip


def rollout(store: Store) -> Rollout:
    with store.read() as session:
        return session.get_one(Rollout, "job_1.train.i0.g0.m0")


def count(store: Store, table: Any) -> int:
    with store.read() as session:
        return len(session.exec(select(table)).all())


def test_an_accepted_attempt_settles_its_rollout(store: Store) -> None:
    plan(store)
    write(store, (scored(), "accepted"))
    row = rollout(store)
    assert (row.status, row.outcome_reward, row.event_reward_sum) == ("scored", 1.0, 0.75)
    assert (row.n_turns, row.n_prompt_tokens, row.n_sampled_tokens) == (1, 2, 3)
    assert (row.min_version, row.max_version) == ("1.2", "1.10"), "versions compare as numbers, not as text"
    with store.read() as session:
        rewards = session.exec(select(EventRewardRow).order_by("position")).all()
    assert [(reward.turn, reward.value) for reward in rewards] == [(0, 0.25), (1, 0.5)]


def test_recording_twice_changes_nothing(store: Store) -> None:
    plan(store)
    for _ in range(2):
        write(store, (scored(), "accepted"))
    assert [count(store, table) for table in (Attempt, Trace, OutcomeRewardRow, EventRewardRow)] == [
        1,
        1,
        1,
        2,
    ]


def test_a_failed_attempt_is_a_record_and_never_a_reward(store: Store) -> None:
    plan(store)
    failed = scored(outcome=Outcome.INFRA_FAILED, rewards=Rewards(), reason="task app answered 500")
    write(store, (failed, "record"))
    row = rollout(store)
    assert (row.status, row.outcome_reward, row.session_id) == ("planned", None, None)
    assert count(store, OutcomeRewardRow) == 0
    with store.read() as session:
        attempt = session.exec(select(Attempt)).one()
    assert (attempt.outcome, attempt.verdict, attempt.reason) == (
        "infra_failed", "record", "task app answered 500"
    )  # fmt: skip


@pytest.mark.parametrize("verdict", ["duplicate", "stale"])
def test_a_late_attempt_does_not_replace_the_accepted_one(store: Store, verdict: str) -> None:
    plan(store)
    late = scored(session_id="trace_late", rewards=Rewards(outcome_reward=0.0))
    write(store, (scored(), "accepted"), (late, verdict))
    assert rollout(store).outcome_reward == 1.0
    assert count(store, Attempt) == 2


def test_an_attempt_of_an_undone_timeline_does_not_settle_the_new_plan(store: Store) -> None:
    plan(store, timeline=2)
    write(store, (scored(), "accepted"))
    assert rollout(store).status == "planned"
    assert count(store, Attempt) == 1


def test_an_attempt_that_a_take_over_kept_settles_the_new_plan(store: Store) -> None:
    plan(store, timeline=2)
    write(store, (scored(), "accepted"), kept=True)
    row = rollout(store)
    assert (row.status, row.timeline) == ("scored", 2)


def test_an_attempt_without_a_planned_row_is_not_lost(store: Store) -> None:
    write(store, (scored(), "accepted"))
    assert rollout(store).outcome_reward == 1.0
