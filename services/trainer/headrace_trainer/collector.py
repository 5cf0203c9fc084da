"""Orders an iteration's rollouts and waits for their trajectories. Imports no torch.

It keeps at most `max_concurrent` orders out, orders again what failed or was lost, and replaces
groups that cannot be completed. Nothing here knows what the trajectories are for.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import redis
from sqlmodel import Session

from headrace import log
from headrace.contracts.trajectory import Outcome
from headrace.errors import JobFailed, StaleTimeline
from headrace.queue import names
from headrace.queue.send import send_order
from headrace.queue.streams import Entry, Verdict
from headrace.store import plan
from headrace.store.plan import PlannedRollout
from headrace_trainer.group_book import Group, GroupBook, Member
from headrace_trainer.intake import Intake
from headrace_trainer.orders import OrderTemplate

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
        self.intake.drop_kept(self.template.purpose, self.template.iteration)
        return self.book.complete_groups()

    def _report_progress(self) -> None:
        n_planned = sum(len(group.members) for group in self.book.groups)
        self._on_progress(n_planned - len(self.book.open_members()), n_planned)

    def _plan_first_groups(self) -> None:
        # Replacements that an undone timeline made are opened when one is needed again, so that the
        # batch has its size whatever was killed; what they brought is kept until then.
        groups = [self._open(index) for index in range(self.book.n_wanted)]
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
        if boundary == "policy" and "failure_reward" in reason:
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
        elif decision.dead is not None:
            why = decision.dead.dead_reason or reason
            self.job.write(lambda session: plan.give_up(session, [rollout_id], "infra_failed", why))
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
        client, now = self.job.context.redis, time.monotonic()
        self._check_timeline()
        if not self._out:
            return
        outs = list(self._out.items())
        tokens: list[bytes | None] = client.mget(  # type: ignore[assignment]
            [names.rollout_lease(self.job.job_id, rollout_id) for rollout_id, _ in outs]
        )
        queue_is_empty = client.llen(names.rollout_queue(self.job.context.settings.pool)) == 0
        for (_, out), token in zip(outs, tokens, strict=True):
            if token is not None:
                # An earlier attempt's player may still be ending; ours waits for it.
                label = names.attempt_label(self.job.timeline, out.member.attempt)
                out.was_leased = out.was_leased or token.startswith(f"{label}/".encode())
                out.n_missing, self._last_taken = 0, now
                continue
            never_taken = queue_is_empty and now - out.since > UNTAKEN_S
            out.n_missing = out.n_missing + 1 if (out.was_leased or never_taken) else 0
        self._give_up_missing([rollout_id for rollout_id, out in outs if out.n_missing >= 2])
        self._say_when_nobody_works(now)

    def _check_timeline(self) -> None:
        """Nothing can be accepted once Redis has lost the timeline: the job is then taken over anew."""
        raw: bytes | None = self.job.context.redis.get(names.timeline(self.job.job_id))  # type: ignore[assignment]
        current = int(raw or 0)
        if current > self.job.timeline:
            raise StaleTimeline(f"job {self.job.job_id} is on timeline {current}, not {self.job.timeline}")
        if current < self.job.timeline:
            raise redis.RedisError(f"Redis has lost the timeline of job {self.job.job_id}")

    def _give_up_missing(self, rollout_ids: list[str]) -> None:
        if not rollout_ids:
            return
        # A dropped connection loses an answer whose entries count as delivered all the same.
        known = {*self.entry_ids, *self.intake.leftovers, *(e.entry_id for e in self.intake.kept.values())}
        for entry in self.intake.reader.read_unacknowledged():
            if entry.entry_id not in known:
                self._take(entry)
        for rollout_id in rollout_ids:
            out = self._out.get(rollout_id)
            if out is not None and out.n_missing >= 2:
                reason = "the worker that played it is gone" if out.was_leased else "its order was lost"
                self._failed(rollout_id, out.member.attempt, reason, "worker")

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
