"""From an iteration's groups to what is learnt from them: returns, advantages, rows, and the ledger's reasons.

Order of arrival changes nothing: groups come by index and members by number.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from headrace.config.rl import RLConfig
from headrace.contracts.policy import PolicyVersion
from headrace.contracts.trajectory import Trajectory
from headrace.rl.advantages import group_advantages, is_zero_variance
from headrace.rl.credit import episode_return
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
    rows: list[tuple[Sequence, float]] = []
    rollouts: list[Learnt] = []
    n_zero_variance = 0
    for group in groups:
        trajectories = [member.trajectory for member in group.members if member.trajectory is not None]
        returns = [episode_return(t.rewards, training.credit) for t in trajectories]
        reason = _why_untrained(returns, training.drop_zero_variance_groups)
        n_zero_variance += len(returns) > 1 and is_zero_variance(returns)
        advantages = (
            group_advantages(returns, training.advantage) if len(returns) > 1 else [0.0] * len(returns)
        )
        for trajectory, value, advantage in zip(trajectories, returns, advantages, strict=True):
            sequences = sequences_of(trajectory)
            n_tokens = sum(sequence.n_trainable for sequence in sequences)
            why = reason or (None if n_tokens else "no token of it can be trained on")
            if why is None:
                rows += [(sequence, advantage) for sequence in sequences]
            trained_tokens = n_tokens if why is None else 0
            rollouts.append(Learnt(trajectory, value, None if why else advantage, trained_tokens, why))
    batch = TrainingBatch.of_rollouts(
        rows,
        normalization=training.normalization,
        max_model_len=max_model_len,
        is_own_version=lambda version: history.staleness(version, current) == 0,
    )
    return Lesson(batch, rollouts, n_zero_variance / max(len(groups), 1))


def _why_untrained(returns: list[float], drop_zero_variance: bool) -> str | None:
    if len(returns) < 2:
        return "its group has fewer than two scored members"
    if drop_zero_variance and is_zero_variance(returns):
        return "zero-variance group: all members got the same return"
    return None
