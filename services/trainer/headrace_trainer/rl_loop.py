"""The RL algorithm, one iteration after the other.

    plan groups -> rollouts -> returns and advantages -> optimiser steps -> checkpoint with ledger
    -> acknowledge -> publish and prove -> evaluate when due -> report

How it differs from the textbook's GRPO:
1. Rollouts are played elsewhere, over HTTP; what comes back are the token ids and logprobs that the
   engine sampled. Text is never tokenised again.
2. A group that cannot be completed is replaced by a fresh seed; nothing is filled with invented zeros.
3. The checkpoint, with the ledger of what it was trained on, comes before the publish, and the
   stream is acknowledged after it: each trajectory is in the surviving weights once, whatever is killed.
4. Each publish is proven: the engine's logprobs of a fixed prompt must equal the trainer's.
"""

from __future__ import annotations

from headrace.errors import JobFailed
from headrace.queue.slots import SlotClaim
from headrace_trainer import accounting, evaluation, rl_report
from headrace_trainer.collector import Collector
from headrace_trainer.group_book import GroupBook
from headrace_trainer.intake import Intake
from headrace_trainer.lesson import Lesson, lesson_of
from headrace_trainer.ownership import OwnedJob
from headrace_trainer.policy_link import PolicyLink
from headrace_trainer.policy_versions import ServedPolicy
from headrace_trainer.rl_run import RLRun
from headrace_trainer.rollout_plan import evaluation_template, group_planner, training_template
from headrace_trainer.step import StepMetrics, rl_step


def run_rl(job: OwnedJob, slot: SlotClaim) -> None:
    """Run the job to its last iteration. Each wait in here looks at cancellation and at the lease."""
    run = RLRun.start_or_resume(job)
    if run.iteration < run.config.iterations or run.unreported:
        _train(run, slot)
    if not run.step:
        raise JobFailed(
            f"no optimiser step was taken in {run.iteration} iterations, so there is no better policy: no group had "
            "members with different returns; start from a model that succeeds sometimes, or reward partial success"
        )
    rl_report.finish(run)


def _train(run: RLRun, slot: SlotClaim) -> None:
    job = run.job

    def tell(reason: str) -> None:
        job.event("rl.policy.away", f"waiting for the policy: {reason}", level="warning")

    link = PolicyLink(job.context, slot, job.job_id, f"{job.job_id}.t{job.timeline}", tell)
    try:
        policy = ServedPolicy.start(run, link)
        intake = Intake.take_over(job, run.can_use)
        rl_report.announce(run)
        _complete_restored(run, policy, intake)
        while run.iteration < run.config.iterations:
            _iterate(run, policy, intake)
    finally:
        link.close()


def _complete_restored(run: RLRun, policy: ServedPolicy, intake: Intake) -> None:
    """Evaluate and report the restored iteration where the kill came behind its checkpoint."""
    if run.unreported:
        run.seconds = {}
        values, run.unreported = run.unreported, {}
        rl_report.report(run, {**values, **_evaluate_when_due(run, policy, intake)}, None)


def _iterate(run: RLRun, policy: ServedPolicy, intake: Intake) -> None:
    run.seconds = {}
    with run.timed("rollout"):
        collector = _collector(run, policy, intake)
        groups = collector.collect()
    with run.timed("train"):
        lesson = lesson_of(groups, run.config, run.history, run.version, policy.spec.max_model_len)
        values = _metrics_before(run, collector.book, lesson)
        learnt = rl_step(
            run.model,
            run.optimizer,
            lesson.batch,
            run.config.training,
            loss=run.loss,
            reference=run.reference,
            step=run.step,
            between=run.job.check,
        )
    values |= learnt.metrics
    nothing_changed = run.advance(learnt.n_optimizer_steps, len(collector.book.groups))
    if nothing_changed:
        raise JobFailed(nothing_changed)
    _account(run, collector.book, lesson, learnt)
    rl_report.tell_overridden(run, lesson.trajectories)
    intake.leftovers += collector.entry_ids
    _make_durable(run, intake, values)
    if str(run.folder) != policy.spec.model_path:  # without a step, too: the folder served so far may go
        with run.timed("publish"):
            values["probe.max_abs"] = policy.publish(run)
    values |= _evaluate_when_due(run, policy, intake)
    rl_report.report(run, values, lesson.nothing_to_learn or learnt.skipped_reason)


def _collector(run: RLRun, policy: ServedPolicy, intake: Intake) -> Collector:
    config, iteration = run.config, run.iteration + 1
    return Collector(
        intake,
        training_template(
            run.job, config, iteration, policy.link.serve_id, run.base.name, run.failure_reward
        ),
        GroupBook(
            n_wanted=config.prompts_per_iteration,
            min_members=config.min_group_members,
            max_attempts=config.training.rollouts.max_attempts,
        ),
        plan_group=group_planner(run.job.job_id, iteration, run.seeds, run.seed_position, config.group_size),
        max_concurrent=config.max_concurrent,
    )


def _metrics_before(run: RLRun, book: GroupBook, lesson: Lesson) -> dict[str, float]:
    """What the rollouts showed, judged by the version that played them."""
    measured = accounting.rollout_metrics(lesson.trajectories, lesson.returns, run.history, run.version)
    return {
        **measured,
        **accounting.outcome_counts(book),
        "group.zero_variance_share": lesson.zero_variance_share,
        "policy.tokens_per_s": measured["tokens.sampled"] / run.seconds["time.rollout_s"],
    }


def _account(run: RLRun, book: GroupBook, lesson: Lesson, learnt: StepMetrics) -> None:
    """Note for the ledger what each rollout of the iteration did to the weights."""
    for one in lesson.rollouts:
        why = one.not_trained_reason or learnt.skipped_reason
        run.saver.pending.append(
            accounting.ledger_entry(
                one.trajectory,
                timeline=run.job.timeline,
                step=None if why else run.step,
                advantage=one.advantage,
                n_trainable_tokens=0 if why else one.n_trainable_tokens,
                not_trained_reason=why,
            )
        )
    run.saver.pending += accounting.unused_entries(book, run.job, run.iteration)


def _make_durable(run: RLRun, intake: Intake, values: dict[str, float]) -> None:
    """Checkpoint and acknowledge; where a checkpoint is dear and not due, write only the weights."""
    if run.saver.is_due(run.iteration, sum(run.seconds.values())):
        with run.timed("checkpoint"):
            run.folder = run.saver.save(
                run.iteration, run.model, run.folder, run.optimizer, run.state(), values
            )
        intake.reader.acknowledge(intake.leftovers)
        intake.leftovers = []
    else:
        with run.timed("checkpoint"):
            run.folder = run.saver.save_weights(run.model, run.folder, run.version)


def _evaluate_when_due(run: RLRun, policy: ServedPolicy, intake: Intake) -> dict[str, float]:
    spec, iteration = run.config.evaluation, run.iteration
    if spec is None or not spec.every_n_iters or iteration % spec.every_n_iters:
        return {}
    seeds = spec.seeds[: spec.instances]
    with run.timed("evaluation"):
        trajectories = evaluation.play(
            intake,
            evaluation_template(
                run.job, run.config, spec, iteration, policy.link.serve_id, run.base.name, run.failure_reward
            ),
            seeds,
            spec.samples,
            max_attempts=run.config.training.rollouts.max_attempts,
            max_concurrent=run.config.max_concurrent,
        )
    found = evaluation.report(trajectories, success_at=1.0)
    run.job.event(
        "rl.eval.summary",
        f"iteration {iteration}: success {found.success:.3f}, mean return {found.mean_return:.3f} "
        f"over {found.n} held-out episodes",
        iteration=iteration,
        success=found.success,
        mean_return=found.mean_return,
        n=found.n,
    )
    return found.metrics()
