"""Which rollouts an iteration waits for. A pure state machine: it decides, `collector` acts.

    ordered ──trajectory with a reward──► done
       │ └──infrastructure failure──► ordered again (attempt + 1), up to max_attempts
       └── attempts used up ──► dead; a group that can no longer reach `min_members` is replaced
                                by a group with a fresh seed and a new index

A trace with group_size 2, max_attempts 2: m0 scored; m1 fails (attempt 1), is ordered again,
fails (attempt 2), is dead; the group has 1 of 2 members left, so group 1 is opened and planned
like any other, and group 0 ends `replaced`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.contracts.trajectory import Trajectory
from headrace.store.plan import PlannedRollout


@dataclass
class Member:
    planned: PlannedRollout
    attempt: int
    """Number of the latest attempt; 0 before the first order."""
    trajectory: Trajectory | None = None
    entry_id: str | None = None
    dead_reason: str | None = None
    boundary: str | None = None

    @property
    def is_open(self) -> bool:
        return self.trajectory is None and self.dead_reason is None


@dataclass
class Group:
    index: int
    seed: int
    members: list[Member]
    is_replaced: bool = False

    def scored(self) -> list[Member]:
        return [member for member in self.members if member.trajectory is not None]


@dataclass
class Decision:
    """What the caller has to do after a record came in."""

    order_again: list[Member] = field(default_factory=list)
    dead: Member | None = None
    """It will not be played again."""
    replace: Group | None = None


class GroupBook:
    """State of one iteration's groups. Group indexes are positions: the n-th has the n-th seed drawn."""

    def __init__(self, *, n_wanted: int, min_members: int, max_attempts: int) -> None:
        self.n_wanted, self.min_members, self.max_attempts = n_wanted, min_members, max_attempts
        self.groups: list[Group] = []
        self._by_id: dict[str, tuple[Group, Member]] = {}

    def open_group(self, planned: list[PlannedRollout]) -> Group:
        members = [Member(rollout, attempt=0) for rollout in planned]
        group = Group(index=planned[0].group, seed=planned[0].seed, members=members)
        self.groups.append(group)
        self._by_id |= {member.planned.rollout_id: (group, member) for member in members}
        return group

    def accept(self, trajectory: Trajectory, entry_id: str | None) -> bool:
        """Take an accepted trajectory; False when this iteration does not wait for it."""
        found = self._by_id.get(trajectory.rollout_id)
        if found is None or not found[1].is_open or found[1].planned.seed != trajectory.seed:
            return False
        member = found[1]
        member.trajectory, member.entry_id = trajectory, entry_id
        member.attempt = max(member.attempt, trajectory.attempt)
        return True

    def fail(self, rollout_id: str, attempt: int, reason: str, boundary: str | None) -> Decision:
        """Take note that an attempt failed by its infrastructure (or was lost)."""
        found = self._by_id.get(rollout_id)
        if found is None or not found[1].is_open or attempt != found[1].attempt:
            return Decision()
        group, member = found
        if attempt < self.max_attempts:
            return Decision(order_again=[member])
        member.dead_reason, member.boundary = f"{reason} (attempt {attempt} of {self.max_attempts})", boundary
        alive = sum(m.dead_reason is None for m in group.members)
        if alive >= self.min_members or group.is_replaced:
            return Decision(dead=member)
        group.is_replaced = True
        for other in group.members:
            if other.is_open:
                other.dead_reason = "its group was replaced"
        return Decision(dead=member, replace=group)

    def open_members(self) -> list[Member]:
        return [member for group in self.groups for member in group.members if member.is_open]

    def complete_groups(self) -> list[Group]:
        """Groups whose members all have ended, in order of index, with enough of them scored."""
        return sorted(
            (g for g in self.groups if not g.is_replaced and not any(m.is_open for m in g.members)),
            key=lambda group: group.index,
        )

    @property
    def is_complete(self) -> bool:
        return len(self.complete_groups()) >= self.n_wanted and not self.open_members()

    def n_replaced(self) -> int:
        return sum(group.is_replaced for group in self.groups)

    def dead(self) -> list[Member]:
        return [m for group in self.groups for m in group.members if m.dead_reason is not None]
