"""What an episode's rewards amount to."""

from __future__ import annotations

import math
from typing import Literal

from headrace.contracts.trajectory import Rewards
from headrace.errors import DataError


def episode_return(rewards: Rewards, credit: Literal["outcome", "outcome_plus_events"]) -> float:
    """The return of one episode: its outcome reward, with its event rewards added where asked.

    Raises DataError when there is no outcome reward: a missing reward is never zero.
    """
    if rewards.outcome_reward is None:
        raise DataError("an episode without an outcome reward has no return; order it again")
    if credit == "outcome":
        return rewards.outcome_reward
    return math.fsum([rewards.outcome_reward, *(event.value for event in rewards.event_rewards)])
