"""Which rollouts an iteration waits for, orders again, gives up and replaces."""

from __future__ import annotations

from headrace.contracts.trajectory import Outcome, Rewards, Trajectory
from headrace.ids import rollout_id
from headrace.store.plan import PlannedRollout
from headrace_trainer.group_book import GroupBook


def planned(group: int, size: int = 2, seed: int | None = None) -> list[PlannedRollout]:
    seed = 100 + group if seed is None else seed
    return [PlannedRollout(rollout_id("j", "train", 1, group, m), group, m, seed) for m in range(size)]


def trajectory(group: int, member: int, *, seed: int | None = None, attempt: int = 1) -> Trajectory:
    return Trajectory(
        org_id="o", job_id="j", rollout_id=rollout_id("j", "train", 1, group, member), session_id=f"s{group}{member}",
        attempt=attempt, timeline=1, purpose="train", iteration=1, group=group, member=member,
        seed=100 + group if seed is None else seed, outcome=Outcome.SCORED, rewards=Rewards(outcome_reward=1.0),
        started_at=0, finished_at=1,
    )  # fmt: skip


def book(n_wanted: int = 1, *, min_members: int = 2, max_attempts: int = 2, size: int = 2) -> GroupBook:
    fresh = GroupBook(n_wanted=n_wanted, min_members=min_members, max_attempts=max_attempts)
    for index in range(n_wanted):
        for member in fresh.open_group(planned(index, size)).members:
            member.attempt = 1
    return fresh


def test_an_iteration_is_complete_only_when_every_member_has_ended():
    waiting = book(n_wanted=2)
    for group, member in ((1, 1), (0, 0), (1, 0)):
        assert waiting.accept(trajectory(group, member), "1-0")
        assert not waiting.is_complete
    assert waiting.accept(trajectory(0, 1), "1-0")
    assert waiting.is_complete
    assert [group.index for group in waiting.complete_groups()] == [0, 1]


def test_a_second_trajectory_of_a_rollout_is_not_taken():
    waiting = book()
    assert waiting.accept(trajectory(0, 0), "1-0")
    assert not waiting.accept(trajectory(0, 0), "2-0")


def test_a_trajectory_of_another_seed_is_not_taken():
    assert not book().accept(trajectory(0, 0, seed=7), "1-0")


def test_a_failed_attempt_is_ordered_again_and_a_late_failure_of_an_older_attempt_changes_nothing():
    waiting = book()
    first = rollout_id("j", "train", 1, 0, 0)
    [again] = waiting.fail(first, 1, "reset", "task_app").order_again
    again.attempt = 2
    assert waiting.fail(first, 1, "reset", "task_app").order_again == []
    assert again.is_open


def test_used_up_attempts_replace_the_group_and_keep_its_scored_member_out():
    waiting = book()
    waiting.accept(trajectory(0, 1), "1-0")
    first = rollout_id("j", "train", 1, 0, 0)
    waiting.fail(first, 1, "reset", "task_app").order_again[0].attempt = 2
    decision = waiting.fail(first, 2, "reset", "task_app")
    assert decision.replace is waiting.groups[0]
    assert not waiting.is_complete
    waiting.open_group(planned(1))
    waiting.accept(trajectory(1, 0), "2-0")
    waiting.accept(trajectory(1, 1), "3-0")
    assert waiting.is_complete
    assert [group.index for group in waiting.complete_groups()] == [1]
    assert waiting.dead()[0].dead_reason == "reset (attempt 2 of 2)"


def test_a_group_with_enough_members_left_is_used_without_the_dead_one():
    waiting = book(min_members=2, size=3, max_attempts=1)
    assert waiting.fail(rollout_id("j", "train", 1, 0, 2), 1, "reset", None).replace is None
    waiting.accept(trajectory(0, 0), "1-0")
    waiting.accept(trajectory(0, 1), "2-0")
    assert waiting.is_complete
    assert len(waiting.complete_groups()[0].scored()) == 2


def test_a_replaced_group_is_replaced_once():
    waiting = book(size=3, min_members=3, max_attempts=1)
    ids = [rollout_id("j", "train", 1, 0, member) for member in range(3)]
    assert waiting.fail(ids[0], 1, "reset", None).replace is not None
    assert waiting.fail(ids[1], 1, "reset", None).replace is None
