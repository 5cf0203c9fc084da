"""Keys that are accepted and have no effect: why each has none, and what to use instead.

They are accepted because configs that were written for other services have them. A dotted key stands
for everything below it, too.
"""

from __future__ import annotations

from typing import Any

from headrace.config.paths import ABSENT, get, written
from headrace.contracts.job import JobType

_POOL = "a pool fixes its machines; choose with [backend] compute_pool and topology_id"
_ONE_ENGINE = "the pool's topology says how many devices the engine uses; choose with [backend] topology_id"
_REFERENCE = "the reference of the KL term is loaded beside the trainer; weigh it with [training] kl_coef"
_ADAPTERS = 'adapters are not trained; all weights are ([model] trainer_mode = "full")'
_JUDGE = "no judge scores episodes; give judged scores as rewards in the task app"
_RUBRIC = "rewards come from the task app alone; weigh criteria in its own outcome reward"
_CREDIT = (
    'event rewards act with [training] credit = "outcome_plus_events" or "reward_to_go"; shape them in the '
    "task app ([rollout.env_config] is passed to it)"
)
_SYNC = "weights are published and proven after each iteration; leave it out"
_VISION = "prompts are text; leave it out"
_MICROBATCH = (
    "gradients are accumulated over micro-batches by tokens; use [training] max_tokens_per_microbatch"
)
_NUMBERS = "the pool's topology fixes the number format; choose with [backend] topology_id"
_SMOKE = "another client's own smoke command reads it; check a config with `headrace config check`"
_BEST = "a job ends with its last weights; watch val.loss and stop earlier with [hyperparameters] max_steps"


def _of(section: str, why: str, *names: str, **own: str) -> dict[str, str]:
    """Reasons of a section and of its known keys."""
    keys = {f"{section}.{name}": why for name in names} | {f"{section}.{name}": own[name] for name in own}
    return {section: why, **keys}


_COMPUTE = {
    "compute.nodes": _POOL,
    **_of("compute.topology", _POOL, "reference_placement"),
}
_LORA_KEYS = ("r", "alpha", "dropout", "target_modules")

_RL: dict[str, str] = {
    **_COMPUTE,
    "services.judge_url": _JUDGE,
    "services.environment": "a job finds its environment by address; use [services] task_url",
    "model.label": "it is kept with the config only; name a job with a key of [tags]",
    "policy.label": "it is kept with the config only; name a job with a key of [tags]",
    "policy.inference_url": (
        "each rollout is given an address of the job's own policy; say how the task app reaches the gateway "
        "with [services] policy_url"
    ),
    **_of("topology", _POOL, "type", "gpus_for_vllm", "gpus_for_training", "gpus_for_ref", "tensor_parallel"),
    **_of(
        "vllm", _ONE_ENGINE, "tensor_parallel_size",
        max_model_len="the engine holds what the model holds; shorten it with [policy] max_model_len",
        limit_mm_per_prompt=_VISION,
    ),
    **_of("reference", _REFERENCE, "placement", "port", "tp", "health_max_wait_s", "health_interval_ms"),
    **_of("lora", _ADAPTERS, *_LORA_KEYS),
    **_of("training.lora", _ADAPTERS, *_LORA_KEYS),
    **_of("training.rewards", _CREDIT),
    **_of(
        "training.weight_sync", _SYNC,
        "enable", "targets", "mode", "direct", "verify_every_k", "interval", "weight_sync_interval",
    ),
    "training.log_interval": "metrics are written for each iteration; leave it out",
    "training.gradient_accumulation_steps": _MICROBATCH,
    "training.max_accumulated_minibatch": _MICROBATCH,
    "training.async_semaphore_max": "the trainer bounds what is in flight; use [training.rollouts] max_concurrent",
    "training.step_rewards_enabled": _CREDIT,
    "training.step_rewards_mode": _CREDIT,
    "training.step_rewards_indicator_lambda": _CREDIT,
    "training.step_rewards_beta": _CREDIT,
    "training.step_rewards_strategy": _CREDIT,
    "training.step_rewards_weights": _CREDIT,
    "training.step_rewards_k_limits": _CREDIT,
    "training.event_rewards_kind": _CREDIT,
    "training.supports_vision": _VISION,
    "training.max_images_per_message": _VISION,
    "model.supports_vision": _VISION,
    "rollout.use_vision": _VISION + ", or pass it on in [rollout.policy_config]",
    "rollout.max_images_per_step": _VISION + ", or pass it on in [rollout.policy_config]",
    "rollout.image_only_mode": _VISION + ", or pass it on in [rollout.policy_config]",
    **_of("judge", _JUDGE, "type", "timeout_s", "enabled"),
    **_of("judge.reward_blend", _RUBRIC, "env", "event", "outcome"),
    **_of(
        "judge.options", _JUDGE, "event", "outcome", "provider", "model", "rubric_id", "rubric_overrides",
        "tracks", "weights", "max_concurrency",
    ),
    **_of("rubric", _RUBRIC, "enabled", "model", "api_base", "api_key_env"),
    **_of("rubric.weights", _RUBRIC, "env", "event", "outcome"),
    **_of("rubric.event", _RUBRIC, "rubric_id", "criteria"),
    **_of("rubric.outcome", _RUBRIC, "rubric_id", "criteria"),
    "smoke": _SMOKE,
}  # fmt: skip

_SFT: dict[str, str] = {
    **_COMPUTE,
    "job.poll_seconds": "the command line polls; use --poll-interval and --poll-timeout",
    **_of("data.topology", _POOL, "container_count"),
    "training.mode": "the algorithm says what is trained; use [algorithm] variety",
    "training.validation.save_best_model_at_end": _BEST,
    "training.validation.metric_for_best_model": _BEST,
    "training.validation.greater_is_better": _BEST,
    **_of("lora", _ADAPTERS, *_LORA_KEYS),
    **_of(
        "hyperparameters.parallelism", _POOL, "use_deepspeed", "deepspeed_stage", "fsdp",
        "tensor_parallel_size", "pipeline_parallel_size", bf16=_NUMBERS, fp16=_NUMBERS,
        activation_checkpointing="bound memory with [hyperparameters] max_tokens_per_microbatch",
    ),
}  # fmt: skip

NOT_USED: dict[JobType, dict[str, str]] = {
    JobType.RL: _RL,
    JobType.SFT: _SFT,
    JobType.EVAL: {
        **_COMPUTE,
        "model.label": _RL["model.label"],
        "model.supports_vision": _VISION,
    },
}
"""Per job type: dotted key, and the sentence that says why it has no effect and what to use."""


def reason(job_type: JobType, key: str) -> str | None:
    """Why a dotted key has no effect; None when it acts."""
    parts = key.split(".")
    for n in range(len(parts), 0, -1):
        if why := NOT_USED[job_type].get(".".join(parts[:n])):
            return why
    return None


def present(job_type: JobType, raw: dict[str, Any]) -> dict[str, str]:
    """The keys of `raw` (null is absent) that have no effect, as a person writes them, with their reasons.

    Of a table whose keys have reasons of their own each key that it holds is named, else the table.
    """
    found: dict[str, str] = {}
    register = NOT_USED[job_type]
    for key, why in register.items():
        value = get(raw, key)
        if value is ABSENT:
            continue
        is_split = isinstance(value, dict) and any(name.startswith(f"{key}.") for name in register)
        names = list(value) if is_split else []
        if not names:
            found[written(key)] = why
        # A key with an entry of its own is named by that.
        others = [f"{key}.{name}" for name in names if f"{key}.{name}" not in register]
        found |= {written(other): why for other in others if get(raw, other) is not ABSENT}
    return found
