from __future__ import annotations

import pytest

from headrace.contracts.trajectory import EventReward, Rewards
from headrace.errors import DataError
from headrace.rl.credit import episode_return

REWARDS = Rewards(
    outcome_reward=1.0, event_rewards=(EventReward(turn=0, value=0.25), EventReward(turn=1, value=-0.5))
)


def test_outcome_credit_ignores_events() -> None:
    assert episode_return(REWARDS, "outcome") == 1.0


def test_event_rewards_are_added_where_asked() -> None:
    assert episode_return(REWARDS, "outcome_plus_events") == 0.75


def test_a_missing_outcome_is_an_error_never_zero() -> None:
    with pytest.raises(DataError, match="no return"):
        episode_return(Rewards(event_rewards=REWARDS.event_rewards), "outcome_plus_events")
