"""What an episode's rewards amount to, and which call gets which part of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from headrace.contracts.trajectory import Rewards
from headrace.errors import DataError

Credit = Literal["outcome", "outcome_plus_events", "reward_to_go"]


def episode_return(rewards: Rewards, credit: Credit) -> float:
    """The return of one episode: its outcome reward, with its event rewards added where asked.

    Raises DataError when there is no outcome reward: a missing reward is never zero.
    """
    if rewards.outcome_reward is None:
        raise DataError("an episode without an outcome reward has no return; order it again")
    if credit == "outcome":
        return rewards.outcome_reward
    return math.fsum([rewards.outcome_reward, *(event.value for event in rewards.event_rewards)])


def rewards_to_go(rewards: Rewards, calls: Sequence[int], discount: float) -> dict[int, float]:
    """Call index -> G of that call, for the episode's answered calls in order.

    G_k = sum_{j >= k} discount^(j - k) e_j + discount^(K - k) R, with K the last call, e_j the sum of
    the event rewards that call j caused and R the outcome reward, which the last call ends with. An
    event whose call is not among `calls` (or unknown) counts for the last call before it, which is the
    first where there is none.
    Raises DataError without an outcome reward.
    """
    if rewards.outcome_reward is None:
        raise DataError("an episode without an outcome reward has no return; order it again")
    earned = dict.fromkeys(calls, 0.0)
    for event in rewards.event_rewards:
        if calls:
            earned[_cause(event.call, calls)] += event.value
    following, found = rewards.outcome_reward, {}
    for position, call in enumerate(reversed(calls)):
        following = earned[call] + (following if position == 0 else discount * following)
        found[call] = following
    return {call: found[call] for call in calls}


def turn_advantages(
    members: Sequence[Mapping[int, float]], values: Sequence[Sequence[float]]
) -> list[dict[int, float]]:
    """Back from advantages by turn to advantages by call: `values[k]` are those of the members with a turn k.

    `members` map call index to reward-to-go in order of turns; `values[k]` holds one number for each
    member that has a k-th turn, in order of members.
    """
    taken = [0] * len(values)
    found: list[dict[int, float]] = []
    for member in members:
        advantages = {}
        for turn, call in enumerate(member):
            advantages[call] = values[turn][taken[turn]]
            taken[turn] += 1
        found.append(advantages)
    return found


def by_turn(members: Sequence[Mapping[int, float]]) -> list[list[float]]:
    """The rewards-to-go of a group's members at each turn, as far as members have one.

    >>> by_turn([{0: 1.0, 2: 0.5}, {0: 3.0}])
    [[1.0, 3.0], [0.5]]
    """
    longest = max(map(len, members), default=0)
    ordered = [list(member.values()) for member in members]
    return [[values[turn] for values in ordered if len(values) > turn] for turn in range(longest)]


def _cause(call: int | None, calls: Sequence[int]) -> int:
    if call in calls:
        return call  # type: ignore[return-value]
    if call is None:
        return calls[-1]
    return max((one for one in calls if one < call), default=calls[0])


def overlong_penalty(n_tokens: int, limit: int, buffer: int) -> float:
    """What a reply of `n_tokens` loses near its limit: 0 up to `limit - buffer`, then linearly down to -1.

    Soft overlong punishment (Yu et al. 2025, DAPO, eq. 13).

    >>> [overlong_penalty(n, 100, 20) for n in (80, 90, 100)]
    [0.0, -0.5, -1.0]
    """
    return -min(1.0, max(0.0, (n_tokens - (limit - buffer)) / buffer))
