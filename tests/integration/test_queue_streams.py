"""The trajectory stream on a real Valkey: what is accepted, kept as a record, read again, trimmed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import redis
from tests.fakes.trajectories import make_call, make_trajectory

from headrace.artifacts.files import ArtifactStore
from headrace.contracts.trajectory import Outcome, Rewards, Trajectory
from headrace.errors import Unavailable
from headrace.queue import names
from headrace.queue.connect import connect
from headrace.queue.streams import (
    INLINE_LIMIT,
    RECORDER_GROUP,
    TRAINER_GROUP,
    StreamReader,
    Verdict,
    close_stream,
    open_stream,
    push,
    trim_acknowledged,
)

pytestmark = pytest.mark.integration
JOB = "job_1"


@pytest.fixture
def client(valkey_url: str) -> redis.Redis:
    client = connect(valkey_url)
    client.set(names.timeline(JOB), 1)
    open_stream(client, "local", JOB)
    return client


@pytest.fixture
def artifacts(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(tmp_path / "artifacts")


@pytest.fixture
def trainer(client: redis.Redis, artifacts: ArtifactStore) -> StreamReader:
    return StreamReader(client, artifacts, JOB, TRAINER_GROUP)


@pytest.fixture
def recorder(client: redis.Redis, artifacts: ArtifactStore) -> StreamReader:
    return StreamReader(client, artifacts, JOB, RECORDER_GROUP)


def attempt(session: str, member: int = 0, **changes: Any) -> Trajectory:
    plain = make_trajectory(rollout_id=f"{JOB}.train.i0.g0.m{member}")
    return plain.model_copy(update={"session_id": session, **changes})


def failed(session: str) -> Trajectory:
    return attempt(session, outcome=Outcome.INFRA_FAILED, reason="broken", rewards=Rewards())


def test_the_first_attempt_is_accepted_and_a_second_is_a_record(client, artifacts, trainer):
    assert push(client, artifacts, attempt("a")) is Verdict.ACCEPTED
    assert push(client, artifacts, attempt("b")) is Verdict.DUPLICATE
    assert [(e.verdict, e.trajectory.session_id) for e in trainer.read_new()] == [
        (Verdict.ACCEPTED, "a"),
        (Verdict.DUPLICATE, "b"),
    ]


def test_a_repeated_push_of_a_session_adds_nothing(client, artifacts, trainer):
    push(client, artifacts, attempt("a"))
    push(client, artifacts, failed("b"))
    push(client, artifacts, attempt("c"))
    for trajectory in (attempt("a"), failed("b"), attempt("c")):
        assert push(client, artifacts, trajectory) is Verdict.REPEATED
    assert [e.trajectory.session_id for e in trainer.read_new()] == ["a", "b", "c"]


def test_a_failed_attempt_leaves_the_rollout_open_for_the_next(client, artifacts, trainer):
    assert push(client, artifacts, failed("a")) is Verdict.RECORD
    assert push(client, artifacts, attempt("b")) is Verdict.ACCEPTED


def test_an_attempt_of_an_older_timeline_is_a_record_and_takes_nothing(client, artifacts, trainer):
    client.set(names.timeline(JOB), 2)
    assert push(client, artifacts, attempt("a", timeline=1)) is Verdict.STALE
    assert push(client, artifacts, attempt("b", timeline=2)) is Verdict.ACCEPTED
    assert [e.verdict for e in trainer.read_new()] == [Verdict.STALE, Verdict.ACCEPTED]


def test_a_push_after_the_job_was_closed_makes_no_stream(client, artifacts):
    close_stream(client, JOB)
    assert push(client, artifacts, attempt("a")) is Verdict.CLOSED
    assert not client.exists(names.trajectories(JOB))
    assert not client.exists(names.seen(JOB))


def test_a_large_trajectory_travels_as_a_reference_and_comes_back_whole(client, artifacts, trainer):
    noise = random.Random(0).randbytes(2 * INLINE_LIMIT).hex()
    sent = attempt("a", details={"noise": noise})
    assert push(client, artifacts, sent) is Verdict.ACCEPTED
    [(_, fields)] = client.xrange(names.trajectories(JOB))
    assert set(fields) == {b"ref", b"verdict"}
    [entry] = trainer.read_new()
    assert entry.trajectory == sent


def test_a_changed_artifact_is_noticed_and_not_read(client, artifacts, trainer):
    push(client, artifacts, attempt("a", details={"noise": random.Random(0).randbytes(INLINE_LIMIT).hex()}))
    [path] = artifacts.root.rglob("*.zst")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(Unavailable, match="does not match its sha256"):
        trainer.read_new()


def test_what_was_read_and_not_acknowledged_is_read_again_by_a_successor(client, artifacts, trainer):
    for member in range(450):
        push(client, artifacts, attempt(f"s{member}", member))
    read = trainer.read_new(count=300)
    trainer.acknowledge([entry.entry_id for entry in read[:10]])
    successor = StreamReader(client, artifacts, JOB, TRAINER_GROUP)
    again = successor.read_unacknowledged()
    assert [e.entry_id for e in again] == [e.entry_id for e in read[10:]]
    assert len(successor.read_new()) == 150
    assert successor.n_unacknowledged() == 440


def test_an_entry_is_trimmed_only_when_both_groups_have_acknowledged_it(client, artifacts, trainer, recorder):
    for member in range(4):
        push(client, artifacts, attempt(f"s{member}", member))
    mine, theirs = trainer.read_new(), recorder.read_new(count=3)
    trainer.acknowledge([e.entry_id for e in mine])
    assert trim_acknowledged(client, JOB) == 0
    recorder.acknowledge([theirs[0].entry_id, theirs[2].entry_id])
    # The second is still pending at the recorder, so only the first goes.
    assert trim_acknowledged(client, JOB) == 1
    recorder.acknowledge([theirs[1].entry_id])
    assert trim_acknowledged(client, JOB) == 2
    assert client.xlen(names.trajectories(JOB)) == 1
    assert [e.trajectory.session_id for e in recorder.read_new()] == ["s3"]


def test_a_group_that_has_read_nothing_keeps_everything(client, artifacts, trainer):
    push(client, artifacts, attempt("a"))
    trainer.acknowledge([e.entry_id for e in trainer.read_new()])
    assert trim_acknowledged(client, JOB) == 0


def test_the_number_behind_counts_pending_and_undelivered_also_after_a_trim(
    client, artifacts, trainer, recorder
):
    for member in range(5):
        push(client, artifacts, attempt(f"s{member}", member))
    assert trainer.n_unacknowledged() == 5
    for reader in (trainer, recorder):
        reader.acknowledge([e.entry_id for e in reader.read_new(count=2)])
    trim_acknowledged(client, JOB)
    assert trainer.n_unacknowledged() == 3
    trainer.read_new(count=1)
    assert trainer.n_unacknowledged() == 3
    push(client, artifacts, attempt("s9", 9))
    assert trainer.n_unacknowledged() == 4


def test_opening_a_stream_again_keeps_what_is_on_it(client, artifacts, trainer):
    push(client, artifacts, attempt("a"))
    open_stream(client, "local", JOB)
    assert client.hget(names.ACTIVE_STREAMS, JOB) == b"local"
    assert len(trainer.read_new()) == 1


def test_token_arrays_survive_the_stream_bit_by_bit(client, artifacts, trainer):
    sent = make_trajectory(make_call(0, [1, 2, 151_935], [3, 4])).model_copy(
        update={"rollout_id": f"{JOB}.train.i0.g0.m0"}
    )
    push(client, artifacts, sent)
    [entry] = trainer.read_new()
    assert entry.trajectory.calls[0].sampled_logprobs == sent.calls[0].sampled_logprobs
    assert entry.trajectory.calls[0].new_prompt_ids == sent.calls[0].new_prompt_ids
