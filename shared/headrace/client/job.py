"""A job as a notebook holds it: what was last seen of it, and what can be asked of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from headrace.client.following import resumed
from headrace.client.rows import Rows, by_step
from headrace.client.transport import Json
from headrace.contracts.job import JobStatus, JobType
from headrace.errors import HeadraceError, JobFailed, Unavailable

if TYPE_CHECKING:
    from headrace.client.notebook import Client


class StillRunning(HeadraceError):
    """A wait has passed its bound; the job goes on."""


class Job:
    """One job. Its fields are as of the last look: `refresh`, `wait` and every action look again."""

    def __init__(self, client: Client, seen: Json) -> None:
        self._client = client
        self.raw = seen
        """The API's whole answer."""

    @property
    def id(self) -> str:
        """`job_...`"""
        return self.raw["job_id"]

    @property
    def type(self) -> JobType:
        return JobType(self.raw["type"])

    @property
    def status(self) -> JobStatus:
        return JobStatus(self.raw["status"])

    @property
    def model(self) -> str:
        """What it started from, as asked for."""
        return self.raw["model"]

    @property
    def model_id(self) -> str | None:
        """`ft:<base>:<job>` once it succeeded: what `chat` and the next job's `[model] source` take."""
        return self.raw.get("model_id")

    @property
    def progress(self) -> tuple[int, int]:
        """(done, planned): iterations of RL, optimiser steps of SFT, episodes of an evaluation."""
        return self.raw.get("iteration") or 0, self.raw.get("iterations") or 0

    @property
    def waits_for(self) -> str | None:
        """Why a queued job is not claimed, or why a running one is paused."""
        return self.raw.get("waiting_reason") or self.raw.get("paused_reason")

    @property
    def error(self) -> str | None:
        """Why it failed, in one sentence."""
        return self.raw.get("error")

    @property
    def result(self) -> Json:
        """The report of a finished job, such as an evaluation's mean reward and interval."""
        return self.raw.get("result") or {}

    @property
    def created_at(self) -> datetime:
        return datetime.fromisoformat(self.raw["created_at"])

    def __repr__(self) -> str:
        done, planned = self.progress
        why = f", {self.waits_for or self.error}" if self.waits_for or self.error else ""
        return f"<Job {self.id} {self.type} {self.status} {done}/{planned}{why}>"

    def refresh(self) -> Job:
        """Look again."""
        self.raw = self._client.get_job(self.id)
        return self

    def wait(self, timeout_s: float | None = None, interval_s: float = 1.0) -> Job:
        """Wait until the job has succeeded; raises JobFailed with its reason when it ends otherwise, and
        StillRunning after `timeout_s`. An API that does not answer is asked again until then."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            self._look()
            if self.status.is_terminal:
                return self._succeeded()
            if end is not None and time.monotonic() >= end:
                raise StillRunning(f"job {self.id} is still {self.status} after {timeout_s:g} s")
            time.sleep(interval_s)

    def _look(self) -> None:
        try:
            self.refresh()
        except Unavailable:
            return  # a restart of the API is no reason to give up on a job of hours

    def _succeeded(self) -> Job:
        if self.status is not JobStatus.SUCCEEDED:
            raise JobFailed(f"job {self.id} {self.status}: {self.error or 'no reason was recorded'}")
        return self

    def follow(self, since_seq: int = 0) -> Iterator[Json]:
        """Events as they come, until the job has ended; a cut connection is taken up where it broke."""
        yield from resumed(self._client, self.id, since_seq)
        self.refresh()

    def metrics(self, *names: str) -> Rows:
        """One row per step: `step` and each metric (or the named ones) in a column of its own."""
        points = self._client.export_metrics(self.id)
        return by_step(point for point in points if not names or point["name"] in names)

    def rewards(self, purpose: str | None = None) -> Rows:
        """One row per iteration: mean reward and return, their spread, and the frequency of each event.

        `purpose` is "train" or "eval", by default what the job itself is.
        """
        return Rows(self._client.rewards(self.id, purpose))

    def rollouts(self, purpose: str | None = None, status: str | None = None) -> Rows:
        """One row per rollout: seed, status, reward, turns, tokens; `purpose` is "train" or "eval"."""
        return Rows(self._client.export_rollouts(self.id, purpose=purpose, status=status))

    def conversations(self, min_reward: float, purpose: str | None = None) -> Iterator[Json]:
        """`{"messages": [...]}` (and `tools`, where the agent sent them) of each scored episode whose outcome
        reward is at least `min_reward`: lines of an SFT dataset.

        An episode is its last call: what the policy saw then, and its reply.
        """
        for row in self.rollouts(purpose, status="scored"):
            reward = row.get("outcome_reward")
            if reward is not None and reward >= min_reward:
                record = _record(self._client.rollout(row["rollout_id"]).get("trajectory"))
                if record is not None:
                    yield record

    def cancel(self) -> Job:
        """Ask for its end; what it has checkpointed stays."""
        self.raw = self._client.cancel_job(self.id)
        return self

    def resume(self) -> Job:
        """Queue it again after it failed or was cancelled; it goes on from its newest checkpoint."""
        self.raw = self._client.resume_job(self.id)
        return self

    def clone(self, overrides: dict[str, Any] | None = None) -> Job:
        """A new job with the same config, but for `{"training.learning_rate": 1e-5}` and the like."""
        return Job(self._client, self._client.clone_job(self.id, overrides=overrides))


def _record(trajectory: Json | None) -> Json | None:
    calls = [call for call in (trajectory or {}).get("calls", []) if call.get("reply")]
    if not calls:
        return None
    last = calls[-1]
    record: Json = {"messages": [*last["messages"], last["reply"]]}
    if last.get("tools"):
        record["tools"] = last["tools"]
    return record
