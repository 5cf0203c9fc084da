from __future__ import annotations

import pytest

from headrace.contracts.trajectory import EventReward, Rewards
from headrace.errors import DataError
from headrace.rl.credit import by_turn, episode_return, rewards_to_go, turn_advantages

REWARDS = Rewards(
    outcome_reward=1.0, event_rewards=(EventReward(turn=0, value=0.25), EventReward(turn=1, value=-0.5))
)

TIED = Rewards(
    outcome_reward=1.0,
    event_rewards=(EventReward(turn=0, call=3, value=0.25), EventReward(turn=1, call=5, value=-0.5)),
)


def test_outcome_credit_ignores_events() -> None:
    assert episode_return(REWARDS, "outcome") == 1.0


def test_event_rewards_are_added_where_asked() -> None:
    assert episode_return(REWARDS, "outcome_plus_events") == 0.75


def test_a_missing_outcome_is_an_error_never_zero() -> None:
    with pytest.raises(DataError, match="no return"):
        episode_return(Rewards(event_rewards=REWARDS.event_rewards), "outcome_plus_events")


def test_a_call_is_credited_with_what_came_after_it_discounted_by_calls() -> None:
    # e = [0.25, -0.5, 0], R = 1 with the last call; discount 0.5
    found = rewards_to_go(TIED, [3, 5, 8], 0.5)
    assert found == {8: 1.0, 5: -0.5 + 0.5 * 1.0, 3: 0.25 + 0.5 * 0.0}


def test_without_a_discount_the_first_call_has_the_whole_return() -> None:
    assert rewards_to_go(TIED, [3, 5, 8], 1.0)[3] == episode_return(TIED, "outcome_plus_events")


def test_an_event_of_a_call_that_is_not_trained_counts_for_the_one_before_it() -> None:
    assert rewards_to_go(TIED, [3, 8], 1.0) == {3: 0.75, 8: 1.0}
    assert rewards_to_go(TIED, [8], 1.0) == {8: 0.75}


def test_an_event_without_a_call_counts_for_the_last() -> None:
    rewards = Rewards(outcome_reward=0.0, event_rewards=(EventReward(turn=0, value=2.0),))
    assert rewards_to_go(rewards, [0, 1], 1.0) == {0: 2.0, 1: 2.0}


def test_an_episode_without_answered_calls_credits_nothing() -> None:
    assert rewards_to_go(TIED, [], 1.0) == {}


def test_members_are_compared_turn_by_turn_and_each_value_returns_to_its_call() -> None:
    members = [{0: 1.0, 4: 2.0}, {1: 3.0}, {0: 5.0, 1: 6.0, 2: 7.0}]
    turns = by_turn(members)
    assert turns == [[1.0, 3.0, 5.0], [2.0, 6.0], [7.0]]
    assert turn_advantages(members, turns) == members
