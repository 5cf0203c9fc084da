"""Commands called in this process against a running API, and jobs that look as if they had run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest
from tests.fakes.trajectories import make_call, make_trajectory
from tests.integration.running_api import ALICE, RunningApi

from headrace.artifacts.files import ArtifactStore
from headrace.contracts.job import JobStatus
from headrace.contracts.trajectory import EventReward, Outcome, Rewards, Trajectory
from headrace.queue import names
from headrace.queue.streams import open_stream, push
from headrace.store import jobs, metrics
from headrace.store.session import Store
from headrace.store.tables import LedgerEntry
from headrace_api.recorder import Recorder
from headrace_cli.main import run


@dataclass
class Said:
    """How a command ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)

    def lines(self) -> list[Any]:
        assert self.code == 0, self.err
        return [json.loads(line) for line in self.out.splitlines()]


Cli = Callable[..., Said]


class HasStore(Protocol):
    """A running stack whose database tests may write."""

    store: Store


@pytest.fixture
def cli(api: RunningApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys) -> Cli:
    """Run a command as Alice in an empty folder."""
    as_alice(api, monkeypatch, tmp_path)

    def call(*arguments: str) -> Said:
        code = run(arguments)
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return call


def as_alice(api: RunningApi, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Point the environment at the API, and go to an empty folder."""
    for name in ("SYNTH_API_KEY", "ENVIRONMENT_API_KEY", "TASK_APP_URL", "BACKEND_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HEADRACE_HOME", str(folder / "no-home"))
    monkeypatch.setenv("HEADRACE_API_URL", api.url)
    monkeypatch.setenv("HEADRACE_API_KEY", ALICE)
    (folder / "here").mkdir(exist_ok=True)
    monkeypatch.chdir(folder / "here")


def rl_job(api: RunningApi, **config: Any) -> str:
    payload = api.rl_payload()
    payload["data"]["config"] |= config
    return api.alice.create_rl_job(payload)["job_id"]


def claim(api: HasStore, job_id: str) -> None:
    with api.store.write() as session:
        jobs.claim(session, job_id, "test")


def end(api: HasStore, job_id: str, status: JobStatus, **fields: Any) -> None:
    """Move a claimed job to its end, by hand."""
    with api.store.write() as session:
        jobs.move(session, job_id, status, **fields)


def measure(api: HasStore, job_id: str, step: int, **values: float) -> None:
    """Write metrics of a step; the first underscore of a name stands for its dot."""
    named = {name.replace("_", ".", 1): value for name, value in values.items()}
    with api.store.write() as session:
        metrics.write(session, "local", job_id, step, named, "training")


def account(
    api: HasStore, job_id: str, rollout_id: str, *, step: int | None, reason: str | None = None
) -> None:
    """Write a line of the ledger."""
    named = {"job_id": job_id, "rollout_id": rollout_id, "org_id": "local", "timeline": 1, "iteration": 0}
    with api.store.write() as session:
        session.add(LedgerEntry(**named, step=step, not_trained_reason=reason))


def played(api: RunningApi, job_id: str, *rewards: float) -> list[str]:
    """Record one rollout of a turn per reward, the first after a failed attempt; returns the rollouts' ids."""
    api.redis.set(names.timeline(job_id), 1)
    open_stream(api.redis, "local", job_id)
    artifacts = ArtifactStore(api.settings.artifacts)
    episodes = [_episode(job_id, member, reward) for member, reward in enumerate(rewards)]
    failed = episodes[0].model_copy(
        update={
            "session_id": f"trace_failed_{job_id}", "attempt": 1, "outcome": Outcome.INFRA_FAILED,
            "rewards": Rewards(), "calls": (), "reason": "the task app answered 500", "boundary": "task_app",
        }
    )  # fmt: skip
    for trajectory in (failed, *episodes):
        push(api.redis, artifacts, trajectory)
    Recorder(api.store, api.redis, artifacts, wait_s=0.05).record_once()
    return [episode.rollout_id for episode in episodes]


def _episode(job_id: str, member: int, reward: float) -> Trajectory:
    call = make_call(
        0, [1, 2], [3, 4], new_messages=({"role": "user", "content": f"question {member}"},),
        reply={"role": "assistant", "content": f"answer {member}"}, tools=({"name": "move"},),
    )  # fmt: skip
    base = make_trajectory(call, rollout_id=f"{job_id}.train.i0.g0.m{member}")
    return base.model_copy(
        update={
            "job_id": job_id, "session_id": f"trace_{job_id}_{member}", "member": member, "iteration": 0,
            "attempt": 2,
            "rewards": Rewards(
                outcome_reward=reward, event_rewards=(EventReward(turn=0, call=0, key="found", value=0.5),)
            ),
        }
    )  # fmt: skip
