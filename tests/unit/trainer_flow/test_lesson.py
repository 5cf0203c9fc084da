"""From groups to advantages by call, and who is left out with which reason."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.fakes.trajectories import VERSION, make_call, make_trajectory

from headrace.config.rl import RLConfig
from headrace.contracts.trajectory import EventReward, Rewards, Trajectory
from headrace.rl.staleness import PolicyHistory
from headrace_trainer.lesson import Lesson, lesson_of


def lesson(*groups: list[Trajectory], **training: Any) -> Lesson:
    config = RLConfig.model_validate(
        {
            "services": {"task_url": "http://app"},
            "model": {"base": "m"},
            "training": training,
            "policy": {"max_tokens": 4},
        }
    )
    made: Any = [
        SimpleNamespace(members=[SimpleNamespace(trajectory=one) for one in group]) for group in groups
    ]
    return lesson_of(made, config, PolicyHistory.start(VERSION), VERSION, 100)


def episode(member: int, reward: float, *events: tuple[int, float], n_calls: int = 2) -> Trajectory:
    calls = [make_call(0, [1, 2], [3, 4])]
    calls += [make_call(k, [5], [6], parent=k - 1) for k in range(1, n_calls)]
    made = make_trajectory(*calls, rollout_id=f"job_1.train.i0.g0.m{member}")
    rewards = Rewards(
        outcome_reward=reward,
        event_rewards=tuple(EventReward(turn=call, call=call, value=value) for call, value in events),
    )
    return made.model_copy(update={"rewards": rewards})


def advantages(found: Lesson) -> dict[str, list[float]]:
    """Advantage of each trained token by rollout."""
    return {row.unit[-2:]: row.trained_advantages.tolist() for row in found.batch.rows}


def test_an_event_reward_moves_the_call_that_caused_it_and_those_before_it() -> None:
    # rewards-to-go: m0 {0: 1, 1: 1}, m1 {0: 1, 1: 0}: alike at the first turn, apart at the second
    group = [episode(0, 0.0, (1, 1.0)), episode(1, 0.0, (0, 1.0))]
    found = lesson(group, credit="reward_to_go", advantage="dr_grpo")
    assert advantages(found) == {"m0": [0.0, 0.0, 0.5], "m1": [0.0, 0.0, -0.5]}
    assert found.zero_variance_share == 0.0


def test_a_turn_that_only_one_member_reached_teaches_nothing() -> None:
    group = [episode(0, 1.0, n_calls=3), episode(1, 0.0, n_calls=2)]
    found = lesson(group, credit="reward_to_go", advantage="dr_grpo")
    assert advantages(found) == {"m0": [0.5, 0.5, 0.5, 0.0], "m1": [-0.5, -0.5, -0.5]}


def test_equal_totals_are_zero_variance_for_whole_episodes_only() -> None:
    group = [episode(0, 0.0, (1, 1.0)), episode(1, 0.0, (0, 1.0))]
    assert lesson(group, credit="outcome_plus_events").zero_variance_share == 1.0
    assert lesson(group, credit="reward_to_go").zero_variance_share == 0.0


@pytest.mark.parametrize("credit", ["outcome", "reward_to_go"])
def test_groups_that_teach_nothing_are_left_out_with_their_reason(credit: str) -> None:
    equal, alone = [episode(0, 1.0), episode(1, 1.0)], [episode(2, 1.0)]
    useful = [episode(3, 0.0), episode(4, 1.0)]
    found = lesson(equal, alone, useful, credit=credit)
    reasons = [one.not_trained_reason for one in found.rollouts]
    assert reasons[:2] == ["zero-variance group: all members got the same return"] * 2
    assert reasons[2:] == ["its group has fewer than two scored members", None, None]
    assert {row.unit[-2:] for row in found.batch.rows} == {"m3", "m4"}


def test_batch_wide_statistics_count_only_groups_that_are_trained_on() -> None:
    equal, useful = [episode(0, 1.0), episode(1, 1.0)], [episode(2, 0.0), episode(3, 1.0)]
    both = advantages(lesson(equal, useful, advantage="reinforce_pp"))
    assert both == advantages(lesson(useful, advantage="reinforce_pp"))


def test_a_reply_near_its_limit_costs_return_but_does_not_make_a_flat_group_useful() -> None:
    short = episode(0, 1.0, n_calls=1)
    call = make_call(0, [1], [3, 4, 5, 6], finish_reason="length")
    long = make_trajectory(call, rollout_id="job_1.train.i0.g0.m1", reward=1.0)
    assert lesson([short, long], overlong_buffer=2).returns == [1.0, 0.0]
    assert lesson([short, long], overlong_buffer=2).zero_variance_share == 1.0
    failing = long.model_copy(update={"rewards": Rewards(outcome_reward=0.0)})
    found = lesson([short, failing], overlong_buffer=2, advantage="dr_grpo")
    assert found.returns == [1.0, -1.0]
    assert advantages(found) == {"m0": [1.0, 1.0], "m1": [-1.0] * 4}


def test_filtered_overlong_episodes_stay_in_the_baseline_and_are_accounted_for() -> None:
    call = make_call(0, [1], [3, 4, 5, 6], finish_reason="length")
    cut = make_trajectory(call, rollout_id="job_1.train.i0.g0.m1", reward=0.0)
    found = lesson([episode(0, 1.0), cut], overlong_filter=True, advantage="dr_grpo")
    assert advantages(found) == {"m0": [0.5] * 3}
    assert "overlong_filter" in (found.rollouts[1].not_trained_reason or "")
