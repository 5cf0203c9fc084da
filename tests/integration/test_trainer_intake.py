"""Collecting an iteration's rollouts while processes, messages and Redis itself get lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from tests.fakes.trainer import JOB, TrainerWorld, broken, rollout_id, trajectory
from tests.fakes.worker import until

from headrace.contracts.trajectory import Outcome, Rewards
from headrace.errors import JobFailed, StaleTimeline
from headrace.queue import names
from headrace.queue.send import send_order
from headrace.queue.streams import TRAINER_GROUP, Verdict, push
from headrace_trainer import collector as collector_module
from headrace_trainer.intake import Intake

pytestmark = pytest.mark.integration


@pytest.fixture
def world(tmp_path: Path, store, valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> TrainerWorld:
    monkeypatch.setattr(collector_module, "LOOK_FOR_LOST_S", 0.2)
    monkeypatch.setattr(collector_module, "UNTAKEN_S", 0.5)
    return TrainerWorld(tmp_path, store, valkey_url)


def meanwhile(action: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    return thread


def usable(_: object) -> bool:
    return True


def test_an_owner_that_was_replaced_cannot_take_its_stream_back(world):
    """It was paused between its claim and the take-over, and wakes when another works already."""
    first, second = world.claim(), world.claim()
    Intake.take_over(second, usable)
    world.redis.hset(names.orders_out(JOB), rollout_id(0, 0), "1")
    assert world.push(0, 0, second.timeline) is Verdict.ACCEPTED
    with pytest.raises(StaleTimeline):
        Intake.take_over(first, usable)
    assert world.redis.get(names.timeline(JOB)) == str(second.timeline).encode()
    assert world.redis.hget(names.seen(JOB), rollout_id(0, 0)) is not None
    assert world.attempt_out(0, 0) == 1


def test_what_was_delivered_but_never_arrived_is_read_again(world):
    """A dropped connection loses the answer to XREADGROUP; the entries count as delivered."""
    job = world.claim()
    collector = world.collector(Intake.take_over(job, usable))

    def lose_one_delivery() -> None:
        until(lambda: world.attempt_out(0, 1))
        # Pushed and delivered in one transaction, so that the collector's own read cannot come between.
        world.redis.set(names.rollout_lease(JOB, rollout_id(0, 0)), f"{job.timeline}.1/a", px=700)
        done = trajectory(0, 0, timeline=job.timeline)
        body = __import__("zstandard").compress(done.model_dump_json().encode())
        with world.redis.pipeline(transaction=True) as pipe:
            pipe.hset(names.seen(JOB), rollout_id(0, 0), done.session_id)
            pipe.xadd(names.trajectories(JOB), {"body": body, "verdict": "accepted"})
            pipe.xreadgroup(TRAINER_GROUP, "reader", {names.trajectories(JOB): ">"}, count=1)
            pipe.execute()
        world.push(0, 1, job.timeline)

    meanwhile(lose_one_delivery)
    [group] = collector.collect()
    assert [member.attempt for member in group.members] == [1, 1]
    assert len(set(collector.entry_ids)) == len(collector.entry_ids) == 2


def test_a_redis_that_lost_the_timeline_hands_the_job_over(world):
    """Nothing ordered before the loss can be accepted any more, so waiting for it would burn every attempt."""
    job = world.claim()
    collector = world.collector(Intake.take_over(job, usable))
    meanwhile(lambda: until(lambda: world.attempt_out(0, 1)) and world.redis.delete(names.timeline(JOB)))
    with pytest.raises(redis.RedisError, match="lost"):
        collector.collect()


def test_a_newer_timeline_in_redis_ends_the_collection(world):
    job = world.claim()
    collector = world.collector(Intake.take_over(job, usable))
    meanwhile(lambda: until(lambda: world.attempt_out(0, 1)) and world.redis.set(names.timeline(JOB), 99))
    with pytest.raises(StaleTimeline):
        collector.collect()


def test_a_lease_of_an_older_timeline_says_nothing_about_the_new_order(world):
    """Workers let go of a replaced timeline's rollouts while the new orders still wait in the queue."""
    Intake.take_over(world.claim(), usable)
    for member in (0, 1):
        world.redis.set(names.rollout_lease(JOB, rollout_id(0, member)), "1.1/a", px=500)
    job = world.claim()
    collector = world.collector(Intake.take_over(job, usable))

    def work() -> None:
        threading.Event().wait(2.5)  # the orders stay in the queue
        for member in (0, 1):
            world.push(0, member, job.timeline, attempt=world.attempt_out(0, member))

    meanwhile(work)
    [group] = collector.collect()
    assert [member.attempt for member in group.members] == [1, 1]


def test_a_dead_member_of_a_group_that_goes_on_without_it_is_closed_in_the_plan(world):
    job = world.claim()
    collector = world.collector(Intake.take_over(job, usable), size=3, min_members=2, max_attempts=1)

    def work() -> None:
        until(lambda: world.attempt_out(0, 2))
        push(world.redis, world.context.artifacts, broken(0, 2, timeline=job.timeline, reason="reset"))
        for member in (0, 1):
            world.push(0, member, job.timeline)

    meanwhile(work)
    collector.collect()
    row = world.rollouts()[rollout_id(0, 2)]
    assert (row.status, row.reason) == ("infra_failed", "reset (attempt 1 of 1)")


def test_a_restart_trains_on_as_many_groups_as_planned_and_forgets_nothing(world):
    """Group 0 was replaced by group 1 before the restart; the seed of group 0 works this time."""
    first = world.claim()
    collector = world.collector(Intake.take_over(first, usable), max_attempts=1)

    def break_group_0() -> None:
        until(lambda: world.attempt_out(0, 0))
        world.push(0, 1, first.timeline)
        push(world.redis, world.context.artifacts, broken(0, 0, timeline=first.timeline, reason="reset"))
        until(lambda: world.attempt_out(1, 0))
        world.push(1, 0, first.timeline)
        until(lambda: len(collector.entry_ids) == 3)
        first._lost.set()

    meanwhile(break_group_0)
    with pytest.raises(StaleTimeline):
        collector.collect()
    second = world.claim()
    intake = Intake.take_over(second, usable)
    again = world.collector(intake)
    meanwhile(lambda: until(lambda: world.attempt_out(0, 0)) and world.push(0, 0, second.timeline))
    [group] = again.collect()
    assert group.index == 0
    assert {m.trajectory.session_id for m in group.members} == {"s00.2.1", "s01.1.1"}
    # What it read and did not use is acknowledged with the next checkpoint, too.
    assert len(intake.leftovers) + len(again.entry_ids) == 4
    assert intake.kept == {}


def test_a_task_app_that_says_failure_reward_does_not_stop_the_job(world):
    job = world.claim()
    collector = world.collector(Intake.take_over(job, usable))

    def work() -> None:
        until(lambda: world.attempt_out(0, 1))
        reason = "the task app answered 500: KeyError: 'failure_reward'"
        failure = broken(0, 0, timeline=job.timeline, reason=reason, boundary="task_app")
        push(world.redis, world.context.artifacts, failure)
        world.push(0, 1, job.timeline)
        until(lambda: world.attempt_out(0, 0) == 2)
        world.push(0, 0, job.timeline, attempt=2)

    meanwhile(work)
    assert len(collector.collect()) == 1
    hopeless = broken(0, 0, timeline=job.timeline, reason="set failure_reward", boundary="policy")
    with pytest.raises(JobFailed, match="failure_reward"):
        collector._failed(hopeless.rollout_id, 1, hopeless.reason or "", hopeless.boundary)


def test_an_order_that_redis_does_not_take_is_an_outage_of_redis(world):
    """Celery wraps it in an error of its own, which would fail the job as an internal error."""
    order = world.collector(Intake.take_over(world.claim(), usable)).template.order
    with pytest.raises(redis.RedisError):
        send_order("redis://127.0.0.1:9/0", "p", order(_first(), 1))


def _first():
    from tests.fakes.trainer import planned

    return planned(0)[0]


def test_rewards_and_outcome_of_the_fakes_agree():
    assert broken(0, 0).rewards == Rewards()
    assert broken(0, 0).outcome is Outcome.INFRA_FAILED
