"""Leases, slots, secrets and orders on a real Valkey."""

from __future__ import annotations

import base64
import json
import threading

import pytest
import redis
from tests.fakes.worker import until

from headrace.contracts.policy import EngineState, PolicyStatus, PolicyVersion, Sampling, ServeSpec
from headrace.contracts.rollout import RolloutOrder
from headrace.errors import JobFailed, StaleTimeline, Unavailable
from headrace.queue import names
from headrace.queue.alive import alive_key, beating
from headrace.queue.connect import connect
from headrace.queue.leases import Lease
from headrace.queue.secrets import seal, unseal
from headrace.queue.send import send_order
from headrace.queue.slots import SlotClaim

pytestmark = pytest.mark.integration
KEY = "lease:test"


@pytest.fixture
def client(valkey_url: str) -> redis.Redis:
    return connect(valkey_url)


def test_one_holder_at_a_time_and_the_next_after_release(client):
    first, second = Lease(client, KEY, 5, "a"), Lease(client, KEY, 5, "b")
    assert first.try_acquire()
    assert not second.try_acquire()
    assert second.holder() == "a"
    first.release()
    assert second.try_acquire()
    assert second.holder() == "b"
    second.release()
    assert second.holder() is None
    assert second.left_ms() == 0


def test_a_held_lease_outlives_its_time_and_an_abandoned_one_does_not(client):
    held = Lease(client, KEY, 0.5, "held")
    client.set("abandoned", "dead/1", px=500)
    assert held.try_acquire()
    until(lambda: not client.exists("abandoned"))
    until(lambda: Lease(client, "abandoned", 5).try_acquire())
    assert client.exists(KEY)
    assert not held.is_lost
    held.release()


def test_an_owner_that_was_replaced_notices_and_does_not_release_the_new_one(client):
    lease = Lease(client, KEY, 0.3, "old")
    lease.try_acquire()
    client.set(KEY, "new/token")
    until(lambda: lease.is_lost)
    lease.release()
    assert client.get(KEY) == b"new/token"


def test_an_expired_lease_counts_as_lost_even_when_nobody_took_it(client):
    lease = Lease(client, KEY, 0.3)
    lease.try_acquire()
    client.delete(KEY)
    until(lambda: lease.is_lost)
    assert lease.is_lost
    lease.release()


def test_only_one_of_many_gets_a_free_lease(client):
    leases = [Lease(client, KEY, 5, str(n)) for n in range(16)]
    won: list[bool] = []
    threads = [threading.Thread(target=lambda one=one: won.append(one.try_acquire())) for one in leases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(won) == 1
    for lease in leases:
        lease.release()


def spec(fence: int, n: int = 0) -> ServeSpec:
    return ServeSpec(
        serve_id="serve_1", job_id="job_1", model_path="/m", architecture_hash="h", max_model_len=64,
        version=PolicyVersion(timeline=1, n=n), fence=fence,
    )  # fmt: skip


def test_each_owner_of_a_slot_outranks_the_one_before(client):
    first, second = SlotClaim(client, "p", 0, "job_1"), SlotClaim(client, "p", 0, "job_2")
    assert first.try_acquire()
    first.serve(spec(first.fence))
    assert not second.try_acquire()
    assert second.holder() == "job_1"
    client.delete(names.slot_owner("p", 0))  # its owner was killed and the lease ran out
    assert second.try_acquire()
    assert second.fence == first.fence + 1
    with pytest.raises(StaleTimeline):
        first.serve(spec(first.fence))
    second.serve(spec(second.fence, n=5))
    assert ServeSpec.model_validate_json(client.get(names.slot_desired("p", 0))).version.n == 5
    first.release()
    assert second.holder() == "job_2"
    second.release()


def report(client: redis.Redis, claim: SlotClaim, **changes: object) -> None:
    fields = {
        "state": EngineState.READY, "serve_id": "serve_1", "version": PolicyVersion(timeline=1, n=0),
        "fence": claim.fence,
    } | changes  # fmt: skip
    client.set(names.slot_status("p", 0), PolicyStatus(**fields).model_dump_json())


def test_waiting_for_a_slot_ends_when_it_serves_what_was_asked(client):
    claim = SlotClaim(client, "p", 0, "job_1")
    claim.try_acquire()
    wanted, ticks = spec(claim.fence), []

    def tick() -> None:
        ticks.append(1)
        if len(ticks) == 1:
            report(client, claim, version=PolicyVersion(timeline=1, n=7))
        else:
            report(client, claim)

    claim.wait_until_served(wanted, 20, tick)
    assert len(ticks) == 2
    claim.release()


def test_waiting_for_a_slot_tells_why_it_failed(client):
    claim = SlotClaim(client, "p", 0, "job_1")
    claim.try_acquire()
    with pytest.raises(JobFailed, match="no gateway reports"):
        claim.wait_until_served(spec(claim.fence), 0.3, lambda: None)
    report(client, claim, state=EngineState.FAILED, reason="out of memory")
    with pytest.raises(JobFailed, match="out of memory"):
        claim.wait_until_served(spec(claim.fence), 20, lambda: None)
    # What an engine failed at for an earlier owner says nothing about this one.
    report(client, claim, state=EngineState.FAILED, fence=claim.fence - 1)
    with pytest.raises(JobFailed, match="did not serve"):
        claim.wait_until_served(spec(claim.fence), 0.3, lambda: None)
    claim.release()


def test_keys_open_only_under_the_secret_they_were_sealed_with():
    sealed = seal("ab" * 32, ["one", "zwei ü"])
    assert b"one" not in sealed
    assert unseal("ab" * 32, sealed) == ["one", "zwei ü"]
    with pytest.raises(Unavailable, match="HEADRACE_SECRET_KEY differs"):
        unseal("cd" * 32, sealed)
    with pytest.raises(Unavailable, match="HEADRACE_SECRET_KEY differs"):
        unseal("ab" * 32, b"short")
    with pytest.raises(Unavailable, match="64 hex digits"):
        seal("", ["one"])


def test_a_heartbeat_is_there_while_the_block_runs(client):
    with beating(client, "test"):
        until(lambda: client.exists(alive_key("test")))
        assert 0 < client.ttl(alive_key("test")) <= 15
    assert not client.exists(alive_key("test"))


def test_an_order_is_one_json_message_on_the_pools_queue(client, valkey_url):
    order = RolloutOrder(
        org_id="local", job_id="job_1", rollout_id="job_1.train.i0.g0.m0", attempt=1, timeline=1,
        purpose="train", iteration=0, group=0, member=0, seed=0, mode="rl", serve_id="s", task_url="http://t",
        policy_url="http://p", policy_public_url="http://p", ops=("agent", "env"), sampling=Sampling(),
        model="m", deadline_s=1.5,
    )  # fmt: skip
    send_order(valkey_url, "pool-a", order)
    [raw] = client.lrange(names.rollout_queue("pool-a"), 0, -1)
    message = json.loads(raw)
    assert message["headers"]["task"] == names.ROLLOUT_TASK
    [[payload], _, _] = json.loads(base64.b64decode(message["body"]))
    assert RolloutOrder.model_validate(payload) == order


def test_as_many_threads_as_a_worker_has_can_talk_at_once(client):
    pool = client.connection_pool
    taken = [pool.get_connection() for _ in range(150)]
    assert len({id(connection) for connection in taken}) == 150
    for connection in taken:
        pool.release(connection)
    pool.disconnect()
