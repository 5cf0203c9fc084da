"""Holding a job: what ends it, what hands it over, and what must not stop its heartbeat."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
import redis
from sqlmodel import Session
from tests.fakes.trainer import JOB, TrainerWorld
from tests.fakes.worker import until

from headrace.clock import now
from headrace.errors import StaleTimeline
from headrace.queue import names
from headrace.queue.slots import SlotClaim
from headrace.store import jobs
from headrace_trainer import claim as claim_module
from headrace_trainer import ownership
from headrace_trainer.ownership import JobCancelled, OwnedJob, SlotLost

pytestmark = pytest.mark.integration


@pytest.fixture
def world(tmp_path: Path, store, valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> TrainerWorld:
    monkeypatch.setattr(ownership, "HEARTBEAT_S", 0.05)
    monkeypatch.setattr(claim_module, "LOOK_EVERY_S", 0.05)
    return TrainerWorld(tmp_path, store, valkey_url)


def test_a_heartbeat_outlives_any_error_and_still_sees_a_cancellation(world, monkeypatch):
    renew, n_calls = jobs.renew, []

    def fails_once(session: Session, *arguments: Any):
        n_calls.append(1)
        if len(n_calls) == 1:
            raise RuntimeError("something that nobody thought of")
        return renew(session, *arguments)

    monkeypatch.setattr(jobs, "renew", fails_once)
    with world.claim() as job:
        with world.store.write() as session:
            jobs.get_job(session, None, JOB).cancel_requested = True

        def is_cancelled() -> bool:
            try:
                job.check()
            except JobCancelled:
                return True
            return False

        until(is_cancelled, 5)


def test_a_job_whose_owner_died_after_a_cancel_request_is_not_run_again(world):
    world.claim()
    with world.store.write() as session:
        jobs.get_job(session, None, JOB).cancel_requested = True
    ran = []
    _release_job(world)
    assert claim_module.run_next(world.context, ("rl",), {"rl": lambda *a: ran.append(a)}, threading.Event())
    assert (ran, world.row().status) == ([], "cancelled")


def test_a_job_handed_over_can_be_claimed_at_once_whatever_its_heartbeat_does(world, monkeypatch):
    renew, entered = jobs.renew, threading.Event()

    def slow(session: Session, *arguments: Any):
        entered.set()
        time.sleep(0.3)
        return renew(session, *arguments)

    with world.claim() as job:
        monkeypatch.setattr(jobs, "renew", slow)
        assert entered.wait(5)
        job.hand_over()
        expires = world.row().lease_expires_at
        assert expires is not None
        assert expires <= now()
    with world.store.read() as session:
        assert jobs.claimable(session, world.context.settings.pool, ("rl",)) == [JOB]


def _release_job(world: TrainerWorld) -> None:
    with world.store.write() as session:
        jobs.get_job(session, None, JOB).lease_expires_at = None


def test_a_trainer_that_lost_its_slot_hands_the_job_over(world):
    """Somebody else decides what the engine serves: going on would burn every rollout's attempts."""

    def run(job: OwnedJob, slot: SlotClaim) -> None:
        world.redis.set(names.slot_owner(world.context.settings.pool, 0), "job_2/another")
        slot._lease._lost.set()  # what its renewal finds within seconds
        with pytest.raises(SlotLost):
            job.check()
        job.check()

    claim_module.run_next(world.context, ("rl",), {"rl": run}, threading.Event())
    assert world.row().status == "running"
    expires = world.row().lease_expires_at
    assert expires is not None
    assert expires <= now()


def test_a_policy_with_another_owner_costs_no_lease_time(world):
    def run(job: OwnedJob, slot: SlotClaim) -> None:
        raise StaleTimeline("the policy gateway refused /admin/publish")

    claim_module.run_next(world.context, ("rl",), {"rl": run}, threading.Event())
    expires = world.row().lease_expires_at
    assert expires is not None
    assert expires <= now()


def test_a_slot_whose_fence_could_not_be_drawn_is_given_back(world, monkeypatch):
    claim = SlotClaim(world.redis, "p", 0, JOB)

    def fail(*_: Any) -> int:
        raise redis.ConnectionError("gone")

    monkeypatch.setattr(claim._client, "incr", fail)
    with pytest.raises(redis.ConnectionError):
        claim.try_acquire()
    assert not world.redis.exists(names.slot_owner("p", 0))
