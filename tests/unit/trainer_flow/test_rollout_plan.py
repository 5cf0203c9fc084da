"""Plans are pure: a restart plans the same rollouts with the same seeds."""

from __future__ import annotations

from headrace.rl.seeds import SeedSchedule
from headrace_trainer.rollout_plan import group_planner


def test_members_share_the_seed_and_replacements_take_the_next_seeds():
    schedule = SeedSchedule(range(10), "shuffle", 3)
    plan_group = group_planner("job_1", 4, schedule, position=7, group_size=3)
    expected, _ = schedule.draw(7, 4)
    groups = [plan_group(index) for index in range(4)]
    assert [{rollout.seed for rollout in group} for group in groups] == [{seed} for seed in expected]
    assert groups[2][1].rollout_id == "job_1.train.i4.g2.m1"
    assert plan_group(2) == group_planner("job_1", 4, SeedSchedule(range(10), "shuffle", 3), 7, 3)(2)
