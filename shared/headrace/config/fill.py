"""Values that other sections give where a key is silent, written into the config so that they can be seen."""

from __future__ import annotations

from headrace.config.evaluation import EvalConfig
from headrace.config.notes import Note
from headrace.config.pools import find_pool, pool_for
from headrace.config.rl import RLConfig
from headrace.config.rollouts import MAX_SEEDS, SeedRange
from headrace.config.sections import Evaluation
from headrace.config.sft import SFTConfig

JobConfig = RLConfig | SFTConfig | EvalConfig


def filled(config: JobConfig, prefix: str) -> tuple[JobConfig, tuple[Note, ...]]:
    """The config with what `[data]` and `[compute]` decide in it, and notes on the latter."""
    return _with_pool(_with_data(config), prefix)


def _with_data(config: JobConfig) -> JobConfig:
    return _with_evaluation(_with_training_data(config)) if isinstance(config, RLConfig) else config


def _with_training_data(config: RLConfig) -> RLConfig:
    rollouts = config.training.rollouts
    seeds = rollouts.seeds if rollouts.seeds is not None else _training_seeds(config)
    split = rollouts.split
    if split is None and "split" not in config.rollout.env_config:
        split = config.data.split
    rollouts = rollouts.model_copy(update={"seeds": seeds, "split": split})
    return config.model_copy(update={"training": config.training.model_copy(update={"rollouts": rollouts})})


def _training_seeds(config: RLConfig) -> SeedRange | None:
    data = config.data
    start = data.seed_start or 0
    if data.episodes_per_iteration is not None:
        return SeedRange(start=start, count=-(-data.episodes_per_iteration // config.group_size))
    if start:
        # As many as the job draws: each prompt once.
        wanted = config.prompts_per_iteration * config.iterations
        return SeedRange(start=start, count=min(wanted, MAX_SEEDS, 2**63 - start))
    return None


def _with_evaluation(config: RLConfig) -> RLConfig:
    data, evaluation = config.data, config.evaluation
    if evaluation is None and data.evaluation_episodes is None:
        return config
    evaluation = evaluation or Evaluation()
    update: dict[str, object] = {}
    if not evaluation.seeds and data.evaluation_episodes is not None:
        start = data.seed_start or 0
        update["seeds"] = tuple(range(start, start + data.evaluation_episodes))
        if "every_n_iters" not in evaluation.model_fields_set:
            update["every_n_iters"] = config.iterations
    if evaluation.split is None:
        update["split"] = data.evaluation_split
    return config.model_copy(update={"evaluation": evaluation.model_copy(update=update)})


def _with_pool(config: JobConfig, prefix: str) -> tuple[JobConfig, tuple[Note, ...]]:
    compute = config.compute
    if compute is None or compute.gpu_type is None or config.backend.compute_pool is not None:
        return config, ()
    name = pool_for(compute.gpu_type, compute.gpu_count)
    pool, _ = find_pool(name)
    asked = f'[compute] gpu_type = "{compute.gpu_type}"'
    count = "" if compute.gpu_count is None else f", gpu_count = {compute.gpu_count}"
    how = "stands for" if name else "is in no pool's gpu_types, so the job runs in the default"
    keys = ["[compute] gpu_type", *(["[compute] gpu_count"] if count else [])]
    note = Note(
        f"{prefix}.config.placed", f"{asked}{count} {how} pool {pool!r}", {"keys": keys, "pool": pool}, "info"
    )
    backend = config.backend.model_copy(update={"compute_pool": pool})
    return config.model_copy(update={"backend": backend}), (note,)


def without_effect(config: JobConfig) -> dict[str, str]:
    """Dotted keys that act in general and not in this config, each with the reason."""
    found: dict[str, str] = {}
    if isinstance(config, SFTConfig):
        found = dict.fromkeys(config.not_used, "[hyperparameters] batch_size says how many a step takes")
    compute = config.compute
    if compute is not None and config.backend.compute_pool is not None:
        why = "[backend] compute_pool chooses the pool"
        found |= {
            f"compute.{key}": why for key in ("gpu_type", "gpu_count") if getattr(compute, key) is not None
        }
    elif compute is not None and compute.gpu_type is None and compute.gpu_count is not None:
        found["compute.gpu_count"] = "it chooses a pool only together with [compute] gpu_type"
    return found
