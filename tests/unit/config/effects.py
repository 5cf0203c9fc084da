"""What each acting key of a config changes, as data: the tests beside it run and audit these tables.

`SEEN` looks at what the services are given (orders of rollouts, the seed schedule, placement);
`PROVEN` names, for keys that only the trainer's own modules follow, the test that shows their effect.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.artifacts.files import ArtifactStore
from headrace.config.fill import JobConfig
from headrace.config.load import load
from headrace.config.paths import with_value
from headrace.config.pools import Topology, find_pool, find_topology
from headrace.config.rl import RLConfig
from headrace.contracts.job import JobType
from headrace.contracts.rollout import RolloutOrder
from headrace.queue.connect import connect
from headrace.settings import Settings
from headrace.store.plan import PlannedRollout
from headrace.store.session import Store
from headrace.store.tables import Job
from headrace_trainer.context import Context
from headrace_trainer.ownership import OwnedJob
from headrace_trainer.rollout_plan import evaluation_template, training_template

URL = "http://127.0.0.1:9"
BASES: dict[JobType, dict[str, Any]] = {
    JobType.RL: {"services": {"task_url": URL}, "model": {"base": "m"}},
    JobType.SFT: {"job": {"model": "m"}},
    JobType.EVAL: {"model": {"base": "m"}, "evaluation_job": {"task_url": URL, "seeds": [1]}},
}
"""The least that each type takes."""


@dataclass(frozen=True)
class Effect:
    """`key = value` (over `more`) makes `see` return `expected`; without the key it returns something else."""

    key: str
    value: Any
    see: Callable[[Any], Any]
    expected: Any
    more: tuple[tuple[str, Any], ...] = ()


def config_with(job_type: JobType, values: dict[str, Any] | tuple[tuple[str, Any], ...]) -> JobConfig:
    raw = BASES[job_type]
    for key, value in dict(values).items():
        raw = with_value(raw, key, value)
        if key in ("model.source", "policy.model_name", "policy.source"):
            raw = {**raw, "model": {"source": value} if key == "model.source" else {}}
    return load(raw, job_type, strict=True).config


_HOME = Path("/nonexistent")
_JOB = Job(job_id="j", org_id="o", type="rl", status="queued", pool="local-cpu", model="m", body_sha256="")


def _owned() -> OwnedJob:
    settings = Settings(home=_HOME, policy_public_url="http://gateway:1")
    topology = Topology(device="cpu", dtype="float32", rollout_slots=4)
    context = Context(
        settings, Store("sqlite://"), connect("redis://127.0.0.1:9"), ArtifactStore(_HOME), topology
    )
    return OwnedJob(context, _JOB, 1, threading.Event())


_PLANNED = PlannedRollout("j.train.i1.g0.m0", 0, 0, 5)


def order(config: RLConfig) -> RolloutOrder:
    """The order of a training rollout."""
    return training_template(_owned(), config, 1, "s", "m", None).order(_PLANNED, 1)


def evaluation_order(config: RLConfig) -> RolloutOrder:
    """The order of a rollout that measures the policy while it trains."""
    assert config.evaluation is not None
    return evaluation_template(_owned(), config, config.evaluation, 1, "s", "m", None).order(_PLANNED, 1)


def _placement(config: JobConfig) -> tuple[str, str]:
    name, pool = find_pool(config.backend.compute_pool)
    return name, find_topology(pool, config.backend.topology_id)[0]


_EVAL = (("evaluation.every_n_iters", 2), ("evaluation.seeds", [1, 2]))

RL = (
    Effect("tags", {"a": 1}, lambda c: c.tags, {"a": 1}),
    Effect("services.task_url", "http://b:1", lambda c: order(c).task_url, "http://b:1"),
    Effect("services.policy_url", "http://c:1/", lambda c: order(c).policy_public_url, "http://c:1"),
    Effect("services.inference_url_form", "query", lambda c: order(c).inference_url_form, "query"),
    Effect("model.base", "n", lambda c: c.model.start, "n"),
    Effect("model.source", "ft:n:j", lambda c: c.model.start, "ft:n:j"),
    Effect("policy.model_name", "n", lambda c: c.model.base, "n"),
    Effect("policy.source", "ft:n:j", lambda c: c.model.source, "ft:n:j"),
    Effect("rollout.env_name", "walk", lambda c: order(c).env_name, "walk"),
    Effect("rollout.policy_name", "react", lambda c: order(c).policy_name, "react"),
    Effect("rollout.env_config", {"level": 2}, lambda c: order(c).env_config, {"level": 2}),
    Effect("rollout.policy_config", {"x": 2}, lambda c: order(c).policy_config.get("x"), 2),
    Effect("rollout.ops", ["agent"], lambda c: order(c).ops, ("agent",)),
    Effect("rollout.max_turns", 2, lambda c: order(c).ops, ("agent", "env") * 2),
    Effect("rollout.max_concurrent_rollouts", 3, lambda c: c.max_concurrent, 3),
    Effect("rollout.episodes_per_batch", 24, lambda c: c.prompts_per_iteration, 3),
    Effect("rollout.batches_per_step", 3, lambda c: c.prompts_per_iteration, 12, (("training.batch_size", 4),)),
    Effect("training.num_epochs", 3, lambda c: c.iterations, 30),
    Effect("training.iterations_per_epoch", 4, lambda c: c.iterations, 4),
    Effect("training.batch_size", 5, lambda c: c.prompts_per_iteration, 5),
    Effect("training.group_size", 4, lambda c: (c.group_size, c.min_group_members), (4, 4)),
    Effect("training.max_turns", 3, lambda c: order(c).ops, ("agent", "env") * 3),
    Effect(
        "algorithm.variety", "gspo", lambda c: (c.training.loss, c.training.normalization),
        ("gspo", "sequence"),
    ),
    Effect("training.kl", 0.1, lambda c: c.training.kl_coef, 0.1),
    Effect("training.seed", 7, lambda c: order(c).sampling.seed, 7),
    Effect("training.rollouts.prompts_per_iteration", 5, lambda c: c.prompts_per_iteration, 5),
    Effect("training.rollouts.rollouts_per_prompt", 4, lambda c: c.group_size, 4),
    Effect("training.rollouts.max_concurrent", 5, lambda c: c.max_concurrent, 5),
    Effect("training.rollouts.seeds", {"start": 3, "count": 2}, lambda c: c.training_seeds, (3, 4)),
    Effect("training.rollouts.split", "train", lambda c: order(c).env_config, {"split": "train"}),
    Effect("training.rollouts.max_turns", 2, lambda c: order(c).ops, ("agent", "env") * 2),
    Effect("training.rollouts.ops", ["agent", "env", "env"], lambda c: order(c).ops, ("agent", "env", "env")),
    Effect("training.rollouts.deadline_s", 5.0, lambda c: order(c).deadline_s, 5.0),
    Effect("training.rollouts.min_group_members", 2, lambda c: c.min_group_members, 2),
    Effect("training.rollouts.record.trace", False, lambda c: order(c).record_trace, False),
    Effect("policy.max_tokens", 9, lambda c: order(c).sampling.max_tokens, 9),
    Effect("policy.history", "template", lambda c: order(c).sampling.history, "template"),
    Effect("policy.temperature", 0.7, lambda c: order(c).sampling.temperature, 0.7),
    Effect("policy.seeded", False, lambda c: order(c).sampling.seed, None),
    Effect(
        "evaluation.every_n_iters", 3, lambda c: c.evaluation.every_n_iters, 3,
        (("evaluation.seeds", [1]),),
    ),
    Effect("evaluation.seeds", [4], lambda c: c.evaluation and c.evaluation.seeds, (4,)),
    Effect("evaluation.samples", 3, lambda c: c.evaluation.samples, 3, _EVAL),
    Effect("evaluation.temperature", 0.0, lambda c: evaluation_order(c).sampling.temperature, 0.0, _EVAL),
    Effect("evaluation.split", "val", lambda c: evaluation_order(c).env_config, {"split": "val"}, _EVAL),
    Effect("evaluation.instances", 1, lambda c: c.evaluation.instances, 1, _EVAL),
    Effect("data.split", "train", lambda c: order(c).env_config, {"split": "train"}),
    Effect("data.seed_start", 100, lambda c: (c.training_seeds or (0,))[0], 100),
    Effect("data.episodes_per_iteration", 16, lambda c: c.training_seeds, (0, 1)),
    Effect("data.evaluation_split", "val", lambda c: evaluation_order(c).env_config, {"split": "val"}, _EVAL),
    Effect(
        "data.evaluation_episodes", 2,
        lambda c: c.evaluation and (c.evaluation.seeds, c.evaluation.every_n_iters), ((0, 1), 10),
    ),
)  # fmt: skip
SFT = (
    Effect("tags", {"a": 1}, lambda c: c.tags, {"a": 1}),
    Effect("job.model", "n", lambda c: c.job.model, "n"),
    Effect("hyperparameters.batch_size", 3, lambda c: c.conversations_per_step, 3),
    Effect("hyperparameters.global_batch", 3, lambda c: c.conversations_per_step, 3),
    Effect("hyperparameters.per_device_batch", 3, lambda c: c.conversations_per_step, 3),
    Effect("hyperparameters.gradient_accumulation_steps", 3, lambda c: c.conversations_per_step, 24),
)
EVAL = (
    Effect("tags", {"a": 1}, lambda c: c.tags, {"a": 1}),
    Effect("data", {"a": 1}, lambda c: c.data, {"a": 1}),
    Effect("model.base", "n", lambda c: c.model.start, "n"),
    Effect("model.source", "ft:n:j", lambda c: c.model.start, "ft:n:j"),
    Effect("rollout.ops", ["agent"], lambda c: c.ops, ("agent",)),
    Effect("rollout.max_turns", 2, lambda c: c.ops, ("agent", "env") * 2),
)
SEEN: dict[JobType, tuple[Effect, ...]] = {JobType.RL: RL, JobType.SFT: SFT, JobType.EVAL: EVAL}

_INFER = "unit/config/test_infer.py::test_each_word_for_a_type_is_heard"
_PLACED = "unit/config/test_pools.py::test_the_operators_table_chooses_a_pool_for_the_devices_asked_for"
_KNOWN = "unit/config/test_pools.py::test_an_unknown_pool_or_topology_names_the_known_ones"
_EVERYWHERE = {
    "type": _INFER, "job_type": _INFER,
    "backend.compute_pool": _KNOWN, "backend.topology_id": _KNOWN,
    "compute.gpu_type": _PLACED, "compute.gpu_count": _PLACED,
}  # fmt: skip
_OPTIMIZER, _STEP, _LOSSES = (f"unit/trainer/test_{name}.py" for name in ("optimizer", "step", "losses"))
_WARMUP = f"{_OPTIMIZER}::test_the_learning_rate_warms_up_and_decays_as_worked_out_by_hand"
_FIRST_STEP = f"{_OPTIMIZER}::test_the_first_adam_step_moves_by_the_learning_rate_against_the_sign"
_DECAY = f"{_OPTIMIZER}::test_only_matrices_decay_and_every_parameter_is_optimised_once"
_NORM = f"{_OPTIMIZER}::test_the_norm_is_reported_before_clipping_and_the_step_uses_the_clipped_gradient"
_BUDGET = "unit/trainer/test_batch.py::test_no_microbatch_exceeds_the_budget_unless_one_rollout_alone_does"
_CLIP = f"{_LOSSES}::test_the_clipped_loss_equals_the_values_worked_out_by_hand"
_NORMALISED = f"{_LOSSES}::test_each_normalisation_by_hand"
_SELECTED = f"{_LOSSES}::test_every_option_of_a_loss_reaches_it"
_WEIGHED = f"{_LOSSES}::test_importance_weights_are_truncated_or_masked_by_token_rollout_or_mean"
_BUFFER = (
    "unit/trainer_flow/test_lesson.py::"
    "test_a_reply_near_its_limit_costs_return_but_does_not_make_a_flat_group_useful"
)
PROVEN: dict[JobType, dict[str, str]] = {
    JobType.RL: {
        **_EVERYWHERE,
        "algorithm.type": _INFER,
        "training.learning_rate": _FIRST_STEP,
        "training.warmup_steps": _WARMUP,
        "training.weight_decay": _DECAY,
        "training.max_grad_norm": _NORM,
        "training.clip_low": _CLIP,
        "training.clip_high": _CLIP,
        "training.updates_per_batch": (
            f"{_STEP}::test_more_updates_measure_the_ratio_against_the_logprobs_before_the_first"
        ),
        "training.advantage": "unit/rl/test_advantages.py::test_dr_grpo_only_subtracts_the_mean",
        "training.normalization": _NORMALISED,
        "training.normalization_length": _NORMALISED,
        "training.loss": _SELECTED,
        "training.dual_clip": f"{_LOSSES}::test_dual_clip_bounds_the_loss_of_negative_advantages_alone",
        "training.ratio_cap": f"{_LOSSES}::test_a_ratio_cap_bounds_negative_advantages_too",
        "training.sapo_temperature_positive": _SELECTED,
        "training.sapo_temperature_negative": _SELECTED,
        "training.dppo_max_shift": _SELECTED,
        "training.dppo_pull": _SELECTED,
        "training.kl_coef": f"{_STEP}::test_a_kl_to_the_reference_pulls_the_policy_back_and_is_reported",
        "training.kl_estimator": f"{_LOSSES}::test_kl_estimators_by_hand",
        "training.importance": _WEIGHED,
        "training.importance_low": _WEIGHED,
        "training.importance_high": _WEIGHED,
        "training.discount": (
            "unit/rl/test_credit.py::test_a_call_is_credited_with_what_came_after_it_discounted_by_calls"
        ),
        "training.overlong_buffer": _BUFFER,
        "training.overlong_filter": (
            "unit/trainer_flow/test_lesson.py::"
            "test_filtered_overlong_episodes_stay_in_the_baseline_and_are_accounted_for"
        ),
        "training.max_tokens_per_microbatch": _BUDGET,
        "training.max_logprob_mismatch": (
            f"{_STEP}::test_a_gross_mismatch_stops_the_job_before_the_weights_move"
        ),
        "training.credit": "unit/rl/test_credit.py::test_event_rewards_are_added_where_asked",
        "training.rollouts.seed_order": (
            "unit/rl/test_seeds.py::test_sequential_order_is_the_list_again_and_again"
        ),
        "training.rollouts.max_attempts": (
            "unit/trainer_flow/test_group_book.py::"
            "test_used_up_attempts_replace_the_group_and_keep_its_scored_member_out"
        ),
        "training.rollouts.failure_reward": (
            "integration/test_trainer_intake.py::"
            "test_a_task_app_that_says_failure_reward_does_not_stop_the_job"
        ),
    },
    JobType.SFT: {
        **_EVERYWHERE,
        "algorithm.type": _INFER,
        "hyperparameters.sequence_length": "unit/trainer/test_sft.py::test_a_bad_line_is_named",
        "hyperparameters.learning_rate": _FIRST_STEP,
        "hyperparameters.schedule": _WARMUP,
        "hyperparameters.weight_decay": _DECAY,
        "hyperparameters.max_grad_norm": _NORM,
        "hyperparameters.max_tokens_per_microbatch": _BUDGET,
        "hyperparameters.seed": (
            "unit/trainer/test_sft.py::test_every_epoch_takes_each_row_once_in_an_order_of_its_own"
        ),
    },
    JobType.EVAL: _EVERYWHERE,
}

_TRAINERS = "unit/config/test_trainer_effects.py"
PROVEN[JobType.RL] |= {
    "training.checkpoint_every": f"{_TRAINERS}::test_a_checkpoint_is_kept_after_each_so_many_iterations",
    "training.drop_zero_variance_groups": (
        f"{_TRAINERS}::test_groups_without_a_signal_are_left_out_only_where_asked"
    ),
    "training.adam_beta1": f"{_TRAINERS}::test_the_optimiser_has_the_betas_of_the_config",
    "training.adam_beta2": f"{_TRAINERS}::test_the_optimiser_has_the_betas_of_the_config",
}
_VALIDATES = f"{_TRAINERS}::test_validation_comes_when_its_keys_say"
PROVEN[JobType.SFT] |= {
    "hyperparameters.checkpoint_every": f"{_TRAINERS}::test_a_checkpoint_is_kept_after_each_so_many_iterations",
    "hyperparameters.warmup_ratio": f"{_TRAINERS}::test_a_share_of_the_steps_warms_up_unless_steps_are_given",
    "hyperparameters.warmup_steps": f"{_TRAINERS}::test_a_share_of_the_steps_warms_up_unless_steps_are_given",
    "training.validation.enabled": _VALIDATES,
    "training.validation.evaluation_strategy": _VALIDATES,
    "training.validation.eval_steps": _VALIDATES,
}

READ: dict[JobType, frozenset[str]] = {
    JobType.RL: frozenset({"policy.max_model_len"}),
    JobType.SFT: frozenset(
        {
            "job.data", "job.data_path", "data.validation_path",
            "hyperparameters.n_epochs", "hyperparameters.max_steps",
        }
    ),
    JobType.EVAL: frozenset(
        {
            *(f"evaluation_job.{name}" for name in (
                "task_url", "seeds", "samples", "temperature", "baseline", "split", "success_at", "seed",
                "max_concurrent", "deadline_s", "max_attempts", "failure_reward",
            )),
            "rollout.env_name", "rollout.policy_name", "rollout.env_config", "rollout.policy_config",
            "policy.max_tokens", "policy.max_model_len", "policy.history",
        }
    ),
}  # fmt: skip
"""Keys that whole processes follow and only end-to-end tests show; that a service reads them is audited."""
