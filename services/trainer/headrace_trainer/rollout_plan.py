"""What an RL iteration asks the workers to play. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.config.rl import RLConfig
from headrace.config.sections import Evaluation
from headrace.contracts.policy import Sampling
from headrace.ids import EVAL, TRAIN, rollout_id
from headrace.rl.seeds import SeedSchedule
from headrace.store.plan import PlannedRollout
from headrace_trainer.orders import OrderTemplate, env_config, policy_config
from headrace_trainer.ownership import OwnedJob


def group_planner(
    job_id: str, iteration: int, schedule: SeedSchedule, position: int, group_size: int
) -> Callable[[int], list[PlannedRollout]]:
    """Plans the n-th group of an iteration: the n-th seed after `position`, replacements included.

    A pure function of its arguments, so a restart plans the same rollouts again.
    """

    def plan_group(index: int) -> list[PlannedRollout]:
        [seed], _ = schedule.draw(position + index, 1)
        return [
            PlannedRollout(rollout_id(job_id, TRAIN, iteration, index, member), index, member, seed)
            for member in range(group_size)
        ]

    return plan_group


def training_template(
    job: OwnedJob, config: RLConfig, iteration: int, serve_id: str, model: str, failure_reward: float | None
) -> OrderTemplate:
    """Orders of training rollouts."""
    return OrderTemplate(
        **_common(job, config, iteration, serve_id, model, failure_reward),
        purpose=TRAIN,
        mode="rl",
        env_config=env_config(config.rollout.env_config, config.split),
        policy_config=policy_config(
            config.rollout.policy_config, model, config.temperature, config.max_reply_tokens
        ),
        sampling=Sampling(
            temperature=config.temperature,
            max_tokens=config.max_reply_tokens,
            seed=config.training.seed if config.is_seeded else None,
            history=config.policy.history,
        ),
    )


def evaluation_template(
    job: OwnedJob,
    config: RLConfig,
    evaluation: Evaluation,
    iteration: int,
    serve_id: str,
    model: str,
    failure_reward: float | None,
) -> OrderTemplate:
    """Orders of the rollouts that measure the policy while it trains."""
    return OrderTemplate(
        **_common(job, config, iteration, serve_id, model, failure_reward),
        purpose=EVAL,
        mode="eval",
        env_config=env_config(config.rollout.env_config, evaluation.split or config.split),
        policy_config=policy_config(
            config.rollout.policy_config, model, evaluation.temperature, config.max_reply_tokens
        ),
        sampling=Sampling(
            temperature=evaluation.temperature,
            max_tokens=config.max_reply_tokens,
            seed=config.training.seed,
            history=config.policy.history,
        ),
    )


def _common(
    job: OwnedJob, config: RLConfig, iteration: int, serve_id: str, model: str, failure_reward: float | None
) -> dict[str, Any]:
    settings = job.context.settings
    return {
        "org_id": job.org_id,
        "job_id": job.job_id,
        "timeline": job.timeline,
        "iteration": iteration,
        "serve_id": serve_id,
        "task_url": config.services.task_url,
        "policy_url": settings.policy_url,
        "policy_public_url": (config.services.policy_url or settings.public_policy_url).rstrip("/"),
        "inference_url_form": config.services.inference_url_form,
        "env_name": config.rollout.env_name,
        "policy_name": config.rollout.policy_name,
        "ops": config.ops,
        "model": model,
        "failure_reward": failure_reward,
        "deadline_s": config.training.rollouts.deadline_s,
        "record_trace": config.training.rollouts.record.trace,
    }
