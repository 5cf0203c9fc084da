"""The evaluator process (`python -m headrace_trainer.evaluator`): claims evaluation jobs. Imports no torch.

Beside them it owns the engine for inference while no job does (`headrace_trainer.inference`).

It waits until no trainer holds the slot's engine, says why it waits, and then decides for the
length of one evaluation what the engine serves.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import update
from sqlmodel import Session, col

from headrace import log
from headrace.config.evaluation import EvalConfig
from headrace.contracts.job import JobStatus
from headrace.contracts.policy import PolicyVersion, Sampling
from headrace.errors import JobFailed
from headrace.ids import EVAL
from headrace.queue.slots import SlotClaim
from headrace.settings import Settings
from headrace.store import jobs, metrics
from headrace.store.models import resolve_model
from headrace.store.tables import Job
from headrace_trainer import evaluation, task_facts
from headrace_trainer.intake import Intake
from headrace_trainer.orders import OrderTemplate, env_config, policy_config
from headrace_trainer.ownership import OwnedJob
from headrace_trainer.policy_link import PolicyLink


def run_evaluation(job: OwnedJob, slot: SlotClaim) -> None:
    """Play the job's seeds with its model and end the job with the report."""
    config = EvalConfig.model_validate(job.row.config)
    context, spec = job.context, config.evaluation_job
    with context.store.read() as session:
        model = resolve_model(session, job.org_id, config.model.start, context.settings)
    facts = task_facts.ask_for(job, spec.task_url)
    task_facts.check_suitable(facts, spec.split, spec.seeds, "[evaluation_job] seeds and split")
    job.event("eval.started", f"playing {len(spec.seeds)} seeds x {spec.samples} with {model.name}")
    link = PolicyLink(context, slot, job.job_id, f"{job.job_id}.t{job.timeline}")
    try:
        version = PolicyVersion(timeline=job.timeline, n=0)
        served = link.desire(Path(model.path), version, config.policy.max_model_len, model.engine_args)
        job.event("eval.policy.starting", f"the policy engine loads {model.name}")
        link.wait_until_served(served, job.check)
        job.event("eval.policy.ready", f"the policy serves {model.name}")
        # The model does not change during the job, so whatever was accepted before stays usable.
        intake = Intake.take_over(job, is_usable=lambda trajectory: trajectory.purpose == EVAL)
        trajectories = evaluation.play(
            intake,
            _template(job, config, link.serve_id, model.name),
            spec.seeds,
            spec.samples,
            max_attempts=spec.max_attempts,
            max_concurrent=min(spec.max_concurrent, context.topology.rollout_slots),
            on_progress=lambda n_ended, _: _show_progress(job, n_ended),
        )
    finally:
        link.close()
    found = evaluation.report(trajectories, spec.success_at)
    _finish(job, config, found)
    intake.reader.acknowledge(intake.leftovers)


def _template(job: OwnedJob, config: EvalConfig, serve_id: str, model_name: str) -> OrderTemplate:
    spec, settings = config.evaluation_job, job.context.settings
    max_tokens = config.policy.max_tokens
    return OrderTemplate(
        org_id=job.org_id,
        job_id=job.job_id,
        timeline=job.timeline,
        purpose=EVAL,
        iteration=0,
        mode="eval",
        serve_id=serve_id,
        task_url=spec.task_url,
        policy_url=settings.policy_url,
        policy_public_url=settings.public_policy_url,
        env_name=config.rollout.env_name,
        env_config=env_config(config.rollout.env_config, spec.split),
        policy_name=config.rollout.policy_name,
        policy_config=policy_config(config.rollout.policy_config, model_name, spec.temperature, max_tokens),
        ops=config.ops,
        sampling=Sampling(
            temperature=spec.temperature,
            max_tokens=max_tokens,
            seed=spec.seed,
            history=config.policy.history,
        ),
        model=model_name,
        failure_reward=spec.failure_reward,
        deadline_s=spec.deadline_s,
        record_trace=True,
    )


def _show_progress(job: OwnedJob, n_ended: int) -> None:
    job.write(
        lambda session: session.execute(
            update(Job).where(col(Job.job_id) == job.job_id).values(iteration=n_ended)
        )  # type: ignore[arg-type]
    )


def _finish(job: OwnedJob, config: EvalConfig, found: evaluation.Report) -> None:
    spec = config.evaluation_job
    result = {**found.to_json(), "temperature": spec.temperature, "difference": None}
    if spec.baseline is not None:
        with job.context.store.read() as session:
            baseline = jobs.get_job(session, job.org_id, spec.baseline)
        if not baseline.result.get("per_seed"):
            raise JobFailed(f"[evaluation_job] baseline = {spec.baseline!r} has no report to compare with")
        result["difference"] = evaluation.difference_to(
            spec.baseline, baseline.result, found, spec.success_at
        )
    summary = f"success {found.success:.3f}, mean return {found.mean_return:.3f} over {found.n} episodes"

    def write(session: Session) -> None:
        metrics.write(session, job.org_id, job.job_id, 1, found.metrics(), "evaluating")
        job.add_event(session, "eval.summary", summary, difference=result["difference"])
        job.add_event(session, "eval.job.completed", "evaluation finished")
        jobs.move(
            session,
            job.job_id,
            JobStatus.SUCCEEDED,
            timeline=job.timeline,
            result=result,
            iteration=found.n,
        )

    job.write(write)


def main() -> None:
    from headrace_trainer.claim import make_context, serve_jobs
    from headrace_trainer.inference import owning

    log.configure("evaluator")
    with owning(lambda: make_context(Settings())):
        serve_jobs("evaluator", ("eval",), {"eval": run_evaluation})


if __name__ == "__main__":
    main()
