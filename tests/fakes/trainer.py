"""The trainer's side of a job without an engine: its rows, its ownership, and workers that only push."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from headrace import ids
from headrace.artifacts.files import ArtifactStore
from headrace.config.pools import Topology
from headrace.contracts.policy import Sampling
from headrace.contracts.trajectory import Outcome, Rewards, Trajectory
from headrace.queue import names
from headrace.queue.connect import connect
from headrace.queue.streams import Verdict, push
from headrace.settings import Settings
from headrace.store import jobs
from headrace.store.plan import PlannedRollout
from headrace.store.session import Store
from headrace.store.tables import Job, Rollout
from headrace_trainer.collector import Collector
from headrace_trainer.context import Context
from headrace_trainer.group_book import GroupBook
from headrace_trainer.intake import Intake
from headrace_trainer.orders import OrderTemplate
from headrace_trainer.ownership import OwnedJob

JOB = "job_1"


class TrainerWorld:
    """One job in SQL and Redis."""

    def __init__(self, home: Path, store: Store, redis_url: str, job_type: str = "rl", **fields: Any) -> None:
        self.store, self.redis = store, connect(redis_url, retries=2)
        settings = Settings(
            home=home,
            redis_url=redis_url,
            trainer_token="token",
            policy_url=fields.pop("policy_url", "http://127.0.0.1:9"),
        )
        topology = Topology(device="cpu", dtype="float32", rollout_slots=4)
        self.context = Context(settings, store, self.redis, ArtifactStore(home / "artifacts"), topology)
        with store.write() as session:
            session.add(
                Job(
                    job_id=JOB, org_id="local", type=job_type, status="queued", pool=settings.pool, model="m",
                    body_sha256="", **fields,
                )
            )  # fmt: skip

    def claim(self) -> OwnedJob:
        """Take the job as a new trainer would, whoever had it before."""
        with self.store.write() as session:
            jobs.get_job(session, None, JOB).lease_expires_at = None
        with self.store.write() as session:
            timeline = jobs.claim(session, JOB, "me")
            assert timeline is not None
            row = jobs.get_job(session, None, JOB)
            session.refresh(row)
        return OwnedJob(self.context, row, timeline, threading.Event())

    def row(self) -> Job:
        with self.store.read() as session:
            return jobs.get_job(session, None, JOB)

    def rollouts(self) -> dict[str, Rollout]:
        from sqlmodel import select

        with self.store.read() as session:
            return {row.rollout_id: row for row in session.exec(select(Rollout)).all()}

    def collector(self, intake: Intake, *, n_wanted: int = 1, size: int = 2, **changes: Any) -> Collector:
        job = intake.job
        book = GroupBook(
            n_wanted=n_wanted,
            min_members=changes.pop("min_members", size),
            max_attempts=changes.pop("max_attempts", 3),
        )
        return Collector(
            intake, template(job.timeline), book,
            plan_group=lambda index: planned(index, size), max_concurrent=changes.pop("max_concurrent", 8),
        )  # fmt: skip

    def push(self, group: int, member: int, timeline: int, **changes: Any) -> Verdict:
        """What a worker pushes at the end of a rollout."""
        return push(
            self.redis, self.context.artifacts, trajectory(group, member, timeline=timeline, **changes)
        )

    def attempt_out(self, group: int, member: int) -> int:
        raw: Any = self.redis.hget(names.orders_out(JOB), rollout_id(group, member))
        return int(raw or 0)


def rollout_id(group: int, member: int) -> str:
    return ids.rollout_id(JOB, ids.TRAIN, 1, group, member)


def planned(group: int, size: int = 2) -> list[PlannedRollout]:
    return [PlannedRollout(rollout_id(group, member), group, member, 100 + group) for member in range(size)]


def trajectory(group: int, member: int, **changes: Any) -> Trajectory:
    fields: dict[str, Any] = {
        "org_id": "local", "job_id": JOB, "rollout_id": rollout_id(group, member), "attempt": 1,
        "session_id": f"s{group}{member}.{changes.get('timeline', 1)}.{changes.get('attempt', 1)}",
        "timeline": 1, "purpose": ids.TRAIN, "iteration": 1, "group": group, "member": member,
        "seed": 100 + group, "outcome": Outcome.SCORED, "rewards": Rewards(outcome_reward=1.0),
        "started_at": 0.0, "finished_at": 1.0,
    }  # fmt: skip
    return Trajectory(**(fields | changes))


def broken(group: int, member: int, **changes: Any) -> Trajectory:
    return trajectory(group, member, **({"outcome": Outcome.INFRA_FAILED, "rewards": Rewards()} | changes))


def template(timeline: int) -> OrderTemplate:
    return OrderTemplate(
        org_id="local", job_id=JOB, timeline=timeline, purpose=ids.TRAIN, iteration=1, mode="rl",
        serve_id="serve", task_url="http://t", policy_url="http://p", policy_public_url="http://p",
        env_name=None, env_config={}, policy_name=None, policy_config={}, ops=("agent", "env"),
        sampling=Sampling(), model="m", failure_reward=None, deadline_s=10, record_trace=True,
    )  # fmt: skip
