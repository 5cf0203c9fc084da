"""The consuming side of a job's stream: taking it over from an older timeline. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sqlmodel import col, select

from headrace import log
from headrace.contracts.trajectory import Trajectory
from headrace.queue import names
from headrace.queue.streams import TRAINER_GROUP, Entry, StreamReader, Verdict, open_stream, take_over
from headrace.store.tables import EnvironmentKey
from headrace_trainer.ownership import OwnedJob

logger = log.get(__name__)


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

        After the fence nothing of an older timeline is accepted any more, so what is read below is
        all there is.
        """
        client, job_id = job.context.redis, job.job_id
        take_over(client, job_id, job.timeline)
        open_stream(client, job.org_id, job_id)
        _share_environment_keys(job)
        intake = cls(job, StreamReader(client, job.context.artifacts, job_id, TRAINER_GROUP))
        entries = intake.reader.read_unacknowledged()
        while page := intake.reader.read_new(block_s=0.01):
            entries += page
        for entry in entries:
            trajectory = entry.trajectory
            is_first = trajectory.rollout_id not in intake.kept
            if entry.verdict is Verdict.ACCEPTED and is_first and is_usable(trajectory):
                intake.kept[trajectory.rollout_id] = entry
                client.hset(names.seen(job_id), trajectory.rollout_id, trajectory.session_id)
            else:
                intake.leftovers.append(entry.entry_id)
        logger.info(
            "intake.taken_over", timeline=job.timeline, kept=len(intake.kept), dropped=len(intake.leftovers)
        )
        return intake

    def drop_kept(self, purpose: str, iteration: int) -> None:
        """What no group of a finished collection took up only needs to be acknowledged."""
        for rollout_id, entry in list(self.kept.items()):
            if (entry.trajectory.purpose, entry.trajectory.iteration) == (purpose, iteration):
                self.leftovers.append(self.kept.pop(rollout_id).entry_id)


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
