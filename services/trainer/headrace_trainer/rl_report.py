"""What an RL job tells people: events, metrics of an iteration, and its end."""

from __future__ import annotations

from collections.abc import Iterable

from sqlmodel import Session

from headrace.contracts.job import JobStatus
from headrace.contracts.trajectory import Trajectory
from headrace.store import jobs, metrics
from headrace.store.models import model_id
from headrace_trainer.losses.select import source_sha256
from headrace_trainer.rl_run import RLRun


def announce(run: RLRun) -> None:
    """Say where the job starts."""
    where = f"resumed after iteration {run.iteration}" if run.iteration else "started"
    run.job.event(
        "rl.train.started",
        f"{where}: {run.config.iterations} iterations of {run.config.prompts_per_iteration} prompts x "
        f"{run.config.group_size} rollouts",
        timeline=run.job.timeline,
        iteration=run.iteration,
        loss=run.config.training.loss,
        loss_source_sha256=source_sha256(run.loss),
        weights_sha256=run.weights_sha256,
    )


def tell_overridden(run: RLRun, trajectories: Iterable[Trajectory]) -> None:
    """Say once per key which sampling settings of the agent the job's own replaced."""
    keys = {key for t in trajectories for call in t.calls for key in call.overridden} - run.told_overridden
    if keys:
        run.told_overridden |= keys
        names = ", ".join(sorted(keys))
        run.job.event(
            "rl.policy.overridden",
            f"the agent's {names} gave way to the job's sampling settings, so that what is sampled is what is scored",
            level="warning",
            keys=sorted(keys),
        )


def report(run: RLRun, values: dict[str, float], skipped_reason: str | None) -> None:
    """Write the metrics and the event of the iteration just done, together."""
    values |= run.seconds
    trained = f", {values['train.trainable_tokens']:.0f} tokens trained"
    sentence = f"iteration {run.iteration}/{run.config.iterations}: reward {values['reward.mean']:.3f}" + (
        f", no step: {skipped_reason}" if skipped_reason else trained
    )

    def write(session: Session) -> None:
        metrics.write(session, run.job.org_id, run.job.job_id, run.iteration, values, "training")
        run.job.add_event(
            session,
            "rl.train.step",
            sentence,
            level="warning" if skipped_reason else "info",
            iteration=run.iteration,
            version=str(run.version),
            weights_sha256=run.weights_sha256,
            reward_mean=values["reward.mean"],
        )

    run.job.write(write)


def finish(run: RLRun) -> None:
    """End the job with its model id; weights that only the engine needed go."""
    name = model_id(run.base.base_name, run.job.job_id)

    def write(session: Session) -> None:
        path = str(run.folder)
        result = {"checkpoint": path, "iterations": run.iteration, "optimizer_steps": run.step}
        run.job.add_event(
            session, "rl.job.completed", f"finished as {name}", fine_tuned_model=name, checkpoint=path
        )
        jobs.move(
            session,
            run.job.job_id,
            JobStatus.SUCCEEDED,
            timeline=run.job.timeline,
            model_id=name,
            result=result,
        )

    run.job.write(write)
    run.saver.drop_weights()
