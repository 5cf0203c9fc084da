"""Orders an iteration's rollouts and waits for their trajectories. Imports no torch.

Only this module talks to the stream and the queue on the consuming side: it keeps at most
`max_concurrent` orders out, orders again what failed or was lost, and replaces groups that cannot
be completed. Nothing here knows what the trajectories are for.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from sqlmodel import Session, col, select

from headrace import log
from headrace.contracts.trajectory import Outcome, Trajectory
from headrace.errors import JobFailed
from headrace.queue import names
from headrace.queue.send import send_order
from headrace.queue.streams import TRAINER_GROUP, Entry, StreamReader, Verdict, open_stream
from headrace.store import plan
from headrace.store.plan import PlannedRollout
from headrace.store.tables import EnvironmentKey
from headrace_trainer.group_book import Group, GroupBook, Member
from headrace_trainer.orders import OrderTemplate
from headrace_trainer.ownership import OwnedJob

LOOK_FOR_LOST_S = 3.0
UNTAKEN_S = 10.0
"""An order that is out for so long while the queue is empty and nobody holds its lease is lost."""
NO_WORKER_S = 30.0

logger = log.get(__name__)


@dataclass
class _Out:
    """An order that is out."""

    member: Member
    since: float
    was_leased: bool = False
    n_missing: int = 0


@dataclass
class Intake:
    """The consuming side of one job's stream on one timeline."""

    job: OwnedJob
    reader: StreamReader
    kept: dict[str, Entry] = field(default_factory=dict)
    """Accepted before this timeline and still usable, by rollout id."""
    leftovers: list[str] = field(default_factory=list)
    """Stream entries that need only to be acknowledged."""

    @classmethod
    def take_over(cls, job: OwnedJob, is_usable: Callable[[Trajectory], bool]) -> Intake:
        """Fence off older timelines, then sort what they left on the stream.

        After the first SET nothing of an older timeline is accepted any more, so what is read below
        is all there is.
        """
        redis, job_id = job.context.redis, job.job_id
        redis.set(names.timeline(job_id), job.timeline)
        redis.delete(names.seen(job_id), names.orders_out(job_id), names.cancelled(job_id))
        open_stream(redis, job.org_id, job_id)
        _share_environment_keys(job)
        intake = cls(job, StreamReader(redis, job.context.artifacts, job_id, TRAINER_GROUP))
        entries = intake.reader.read_unacknowledged()
        while page := intake.reader.read_new(block_s=0.01):
            entries += page
        for entry in entries:
            trajectory = entry.trajectory
            if entry.verdict is Verdict.ACCEPTED and is_usable(trajectory):
                intake.kept[trajectory.rollout_id] = entry
                redis.hset(names.seen(job_id), trajectory.rollout_id, trajectory.session_id)
            else:
                intake.leftovers.append(entry.entry_id)
        logger.info(
            "intake.taken_over", timeline=job.timeline, kept=len(intake.kept), dropped=len(intake.leftovers)
        )
        return intake


def _share_environment_keys(job: OwnedJob) -> None:
    """Put the organisation's sealed environment keys where the job's workers find them."""
    with job.context.store.read() as session:
        rows = session.exec(
            select(EnvironmentKey)
            .where(EnvironmentKey.org_id == job.org_id)
            .order_by(col(EnvironmentKey.updated_at).desc())
        ).all()
    key = names.environment_keys(job.job_id)
    pipeline = job.context.redis.pipeline()
    pipeline.delete(key)
    if rows:
        pipeline.rpush(key, *[row.ciphertext for row in rows])
    pipeline.execute()


class Collector:
    """Plans and collects the groups of one (purpose, iteration)."""

    def __init__(
        self,
        intake: Intake,
        template: OrderTemplate,
        book: GroupBook,
        *,
        plan_group: Callable[[int], list[PlannedRollout]],
        max_concurrent: int,
        on_progress: Callable[[int, int], None] = lambda n_ended, n_planned: None,
    ) -> None:
        self._on_progress = on_progress
        self.job, self.intake, self.template, self.book = intake.job, intake, template, book
        self._plan_group, self._max_concurrent = plan_group, max_concurrent
        self._to_order: deque[Member] = deque()
        self._not_before: dict[str, float] = {}
        self._out: dict[str, _Out] = {}
        self._last_taken = time.monotonic()
        self._told_no_worker = False
        self.entry_ids: list[str] = []
        """Every stream entry read here: acknowledged with the checkpoint that includes them."""

    def collect(self) -> list[Group]:
        """Plan, order and wait until every group has ended; returns them in order of index."""
        self._plan_first_groups()
        looked = time.monotonic()
        while not self.book.is_complete:
            self.job.check()
            self._send_due()
            for entry in self.intake.reader.read_new(block_s=0.25):
                self._take(entry)
            if time.monotonic() - looked > LOOK_FOR_LOST_S:
                self._look_for_lost()
                self._report_progress()
                looked = time.monotonic()
        return self.book.complete_groups()

    def _report_progress(self) -> None:
        n_planned = sum(len(group.members) for group in self.book.groups)
        self._on_progress(n_planned - len(self.book.open_members()), n_planned)

    def _plan_first_groups(self) -> None:
        with self.job.context.store.read() as session:
            n_before = plan.n_groups(session, self.job.job_id, self.template.purpose, self.template.iteration)
        groups = [self._open(index) for index in range(max(self.book.n_wanted, n_before))]
        kept = frozenset(m.planned.rollout_id for g in groups for m in g.members if m.trajectory is not None)
        self._save([m.planned for g in groups for m in g.members], kept)

    def _open(self, index: int) -> Group:
        group = self.book.open_group(self._plan_group(index))
        for member in group.members:
            entry = self.intake.kept.pop(member.planned.rollout_id, None)
            if entry is not None and self.book.accept(entry.trajectory, entry.entry_id):
                self.entry_ids.append(entry.entry_id)
            else:
                if entry is not None:
                    self.intake.leftovers.append(entry.entry_id)
                self._to_order.append(member)
        return group

    def _save(self, rollouts: list[PlannedRollout], keep: frozenset[str] = frozenset()) -> None:
        self.job.write(
            lambda session: plan.save(
                session, self.job.row, self.job.timeline, self.template.purpose,
                self.template.iteration, rollouts, keep=keep,
            )
        )  # fmt: skip

    def _send_due(self) -> None:
        context, now = self.job.context, time.monotonic()
        waiting: list[Member] = []
        while self._to_order and len(self._out) < self._max_concurrent:
            member = self._to_order.popleft()
            rollout_id = member.planned.rollout_id
            if not member.is_open:
                continue
            if now < self._not_before.get(rollout_id, 0.0):
                waiting.append(member)
                continue
            member.attempt += 1
            order = self.template.order(member.planned, member.attempt)
            context.redis.hset(names.orders_out(self.job.job_id), rollout_id, str(member.attempt))
            send_order(context.settings.redis_url, context.settings.pool, order)
            self._out[rollout_id] = _Out(member, now)
        self._to_order.extend(waiting)

    def _take(self, entry: Entry) -> None:
        self.entry_ids.append(entry.entry_id)
        trajectory = entry.trajectory
        self._last_taken, self._told_no_worker = time.monotonic(), False
        if entry.verdict is Verdict.ACCEPTED:
            if self.book.accept(trajectory, entry.entry_id):
                self._settle(trajectory.rollout_id)
        elif trajectory.timeline == self.job.timeline and trajectory.outcome is Outcome.INFRA_FAILED:
            reason = trajectory.reason or "no reason given"
            self._failed(trajectory.rollout_id, trajectory.attempt, reason, trajectory.boundary)

    def _settle(self, rollout_id: str) -> None:
        self._out.pop(rollout_id, None)
        self.job.context.redis.hdel(names.orders_out(self.job.job_id), rollout_id)

    def _failed(self, rollout_id: str, attempt: int, reason: str, boundary: str | None) -> None:
        logger.warning("rollout.failed", rollout_id=rollout_id, attempt=attempt, reason=reason)
        if "failure_reward" in reason:
            # Leaving broken episodes out would bias towards short ones, and inventing a reward is worse.
            raise JobFailed(reason)
        decision = self.book.fail(rollout_id, attempt, reason, boundary)
        out = self._out.get(rollout_id)
        if out is not None and out.member.attempt == attempt:
            self._settle(rollout_id)
        for member in decision.order_again:
            self._not_before[rollout_id] = time.monotonic() + 0.5 * 2**attempt
            self._to_order.append(member)
        if decision.replace is not None:
            self._replace(decision.replace, reason)
        self._stop_when_hopeless(reason, boundary)

    def _replace(self, group: Group, reason: str) -> None:
        dead = [m.planned.rollout_id for m in group.members if m.trajectory is None]
        for rollout_id in dead:
            self._settle(rollout_id)
        fresh = self._open(len(self.book.groups))
        self._save([member.planned for member in fresh.members])

        def note(session: Session) -> None:
            plan.give_up(session, dead, "infra_failed", f"group replaced: {reason}")
            self.job.add_event(
                session,
                f"{self.job.prefix}.group.replaced",
                f"group {group.index} (seed {group.seed}) was replaced by group {fresh.index}: {reason}",
                level="warning",
                group=group.index,
                seed=group.seed,
            )

        self.job.write(note)

    def _stop_when_hopeless(self, reason: str, boundary: str | None) -> None:
        """Fail the job when rollouts keep breaking, instead of replacing groups for ever."""
        n_dead, n_scored = len(self.book.dead()), sum(len(g.scored()) for g in self.book.groups)
        if (n_scored == 0 and n_dead >= 3) or self.book.n_replaced() > self.book.n_wanted:
            raise JobFailed(f"rollouts keep failing at the {boundary or 'worker'}: {reason}")

    def _look_for_lost(self) -> None:
        """Order again what no living worker plays: its lease is gone and nothing came on the stream."""
        redis, job_id, now = self.job.context.redis, self.job.job_id, time.monotonic()
        if not self._out:
            return
        outs = list(self._out.values())
        pipeline = redis.pipeline(transaction=False)
        for out in outs:
            pipeline.exists(names.rollout_lease(job_id, out.member.planned.rollout_id))
        leased = pipeline.execute()
        queue_is_empty = redis.llen(names.rollout_queue(self.job.context.settings.pool)) == 0
        for out, has_lease in zip(outs, leased, strict=True):
            if has_lease:
                out.was_leased, out.n_missing = True, 0
                self._last_taken = now
                continue
            taken_and_gone = out.was_leased
            never_taken = queue_is_empty and now - out.since > UNTAKEN_S
            out.n_missing = out.n_missing + 1 if (taken_and_gone or never_taken) else 0
            if out.n_missing >= 2:
                self._failed(
                    out.member.planned.rollout_id,
                    out.member.attempt,
                    "the worker that played it is gone" if taken_and_gone else "its order was lost",
                    "worker",
                )
        self._say_when_nobody_works(now)

    def _say_when_nobody_works(self, now: float) -> None:
        if now - self._last_taken > NO_WORKER_S and not self._told_no_worker:
            self._told_no_worker = True
            pool = self.job.context.settings.pool
            self.job.event(
                f"{self.job.prefix}.waiting",
                f"no rollout worker of pool {pool!r} has taken an order for {NO_WORKER_S:.0f} s; "
                "start one with `python -m headrace_rollout_worker`",
                level="warning",
            )
