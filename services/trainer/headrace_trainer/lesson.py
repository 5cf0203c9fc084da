"""From an iteration's groups to what is learnt from them: returns, advantages, rows, and the ledger's reasons.

Order of arrival changes nothing: groups come by index and members by number.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from headrace.config.rl import RLConfig, Training
from headrace.contracts.policy import PolicyVersion
from headrace.contracts.trajectory import Trajectory
from headrace.rl.advantages import batch_advantages, is_zero_variance
from headrace.rl.credit import (
    by_turn,
    episode_return,
    overlong_penalty,
    rewards_to_go,
    turn_advantages,
)
from headrace.rl.sequences import Sequence, sequences_of
from headrace.rl.staleness import PolicyHistory
from headrace_trainer.batch import TrainingBatch
from headrace_trainer.group_book import Group


@dataclass(frozen=True)
class Learnt:
    """One rewarded rollout of the iteration, trained on or not."""

    trajectory: Trajectory
    episode_return: float
    advantage: float | None
    n_trainable_tokens: int
    not_trained_reason: str | None


@dataclass
class Lesson:
    """An optimiser batch and an account of every rollout that could have been in it."""

    batch: TrainingBatch
    rollouts: list[Learnt] = field(default_factory=list)
    zero_variance_share: float = 0.0

    @property
    def trajectories(self) -> list[Trajectory]:
        return [learnt.trajectory for learnt in self.rollouts]

    @property
    def nothing_to_learn(self) -> str | None:
        """Why no rollout is in the batch; None when some are."""
        reasons = Counter(learnt.not_trained_reason for learnt in self.rollouts)
        if None in reasons or not reasons:
            return None
        [(reason, n)] = reasons.most_common(1)
        return f"{n} of {len(self.rollouts)} rollouts left out: {reason}"

    @property
    def returns(self) -> list[float]:
        return [learnt.episode_return for learnt in self.rollouts]


def lesson_of(
    groups: list[Group], config: RLConfig, history: PolicyHistory, current: PolicyVersion, max_model_len: int
) -> Lesson:
    """Advantages within each group, and the batch of all rows with a signal."""
    training = config.training
    marked = [_marked(group, training, config.max_reply_tokens) for group in groups]
    rows: list[tuple[Sequence, float | dict[int, float]]] = []
    rollouts: list[Learnt] = []
    for group, advantages in zip(marked, _advantages(marked, training), strict=True):
        for trajectory, value, advantage in zip(group.trajectories, group.returns, advantages, strict=True):
            sequences = sequences_of(trajectory)
            n_tokens = sum(sequence.n_trainable for sequence in sequences)
            why = group.reason or (None if n_tokens else "no token of it can be trained on")
            if why is None and training.overlong_filter and _is_cut(trajectory):
                why = "a reply was ended by its limit of tokens (overlong_filter)"
            if why is None:
                rows += [(sequence, advantage) for sequence in sequences]
            shown = _mean(advantage) if why is None else None
            rollouts.append(Learnt(trajectory, value, shown, 0 if why else n_tokens, why))
    batch = TrainingBatch.of_rollouts(
        rows,
        normalization=training.normalization,
        constant_length=training.normalization_length or 1,
        max_model_len=max_model_len,
        is_own_version=lambda version: history.staleness(version, current) == 0,
    )
    n_zero_variance = sum(group.is_zero_variance for group in marked)
    return Lesson(batch, rollouts, n_zero_variance / max(len(groups), 1))


@dataclass(frozen=True)
class _Marked:
    """A group with what each member earned."""

    trajectories: list[Trajectory]
    returns: list[float]
    to_go: list[dict[int, float]]
    """Per member: call -> reward-to-go; empty where the whole episode has one return."""
    is_zero_variance: bool
    reason: str | None
    """Why no member is trained on."""


def _marked(group: Group, training: Training, max_reply_tokens: int | None) -> _Marked:
    """Whether members differ is judged by what the task app gave, before any shaping."""
    trajectories = [member.trajectory for member in group.members if member.trajectory is not None]
    returns = [episode_return(t.rewards, training.credit) for t in trajectories]
    to_go: list[dict[int, float]] = []
    compared = [returns]
    if training.credit == "reward_to_go":
        to_go = [rewards_to_go(t.rewards, _answered(t), training.discount) for t in trajectories]
        compared = by_turn(to_go)
    is_flat = len(returns) > 1 and all(map(is_zero_variance, compared))
    reason = None
    if len(returns) < 2:
        reason = "its group has fewer than two scored members"
    elif is_flat and training.drop_zero_variance_groups:
        reason = "zero-variance group: all members got the same return"
    if training.overlong_buffer is not None and max_reply_tokens is not None:
        for index, trajectory in enumerate(trajectories):
            longest = max((len(call.sampled_ids) for call in trajectory.calls), default=0)
            penalty = overlong_penalty(longest, max_reply_tokens, training.overlong_buffer)
            returns[index] += penalty
            if to_go:
                to_go[index] = {call: value + penalty for call, value in to_go[index].items()}
    return _Marked(trajectories, returns, to_go, is_flat, reason)


def _advantages(groups: list[_Marked], training: Training) -> list[list[float] | list[dict[int, float]]]:
    """Per group and member: one advantage, or one per call where rewards are credited call by call.

    Groups that are not trained on take no part in the statistics of the batch; theirs are zeros.
    """
    kept = [group for group in groups if group.reason is None]
    if training.credit != "reward_to_go":
        found = iter(batch_advantages([group.returns for group in kept], training.advantage))
        return [next(found) if group.reason is None else [0.0] * len(group.returns) for group in groups]
    turns = [by_turn(group.to_go) for group in kept]
    # A turn that only one member reached has nothing to be compared with.
    compared = [values for group in turns for values in group if len(values) > 1]
    found = iter(batch_advantages(compared, training.advantage))
    by_call = iter(
        turn_advantages(group.to_go, [next(found) if len(values) > 1 else [0.0] for values in of_turns])
        for group, of_turns in zip(kept, turns, strict=True)
    )
    return [next(by_call) if group.reason is None else [{}] * len(group.returns) for group in groups]


def _answered(trajectory: Trajectory) -> list[int]:
    """Calls that got a reply and count, in order."""
    return [call.index for call in trajectory.calls if call.is_trainable and len(call.sampled_ids)]


def _is_cut(trajectory: Trajectory) -> bool:
    return any(call.finish_reason == "length" for call in trajectory.calls if call.is_trainable)


def _mean(advantage: float | dict[int, float]) -> float:
    if not isinstance(advantage, dict):
        return advantage
    return math.fsum(advantage.values()) / len(advantage) if advantage else 0.0
