"""`headrace config check`: everything about a config that can be known without a server."""

from __future__ import annotations

from typing import Any

from headrace.config.load import Loaded, infer_type, load
from headrace.config.pools import find_pool, find_topology, refuse_beyond
from headrace.config.rl import RLConfig
from headrace.config.sentences import refusal
from headrace.config.sft import SFTConfig
from headrace.config.walk import JobConfig
from headrace.contracts.job import JobType


def check(raw: dict[str, Any], job_type: JobType | None) -> Loaded:
    """Load strictly, infer the type where None is given, and hold the config against its pool.

    Raises ConfigError that lists every problem; what is allowed and worth telling is in `notes`.
    """
    job_type = job_type or infer_type(raw)
    if job_type is None:
        raise refusal(
            [
                'the config does not say what job it is: add type = "rl", "sft" or "eval" at its top, or give --type'
            ]
        )
    loaded = load(raw, job_type, strict=True)
    check_placement(loaded.config)
    return loaded


def check_placement(config: JobConfig) -> None:
    """Raise ConfigError when pool or topology are unknown, or the job is more than the pool takes."""
    name, pool = find_pool(config.backend.compute_pool)
    find_topology(pool, config.backend.topology_id)
    if isinstance(config, SFTConfig):
        return
    is_rl = isinstance(config, RLConfig)
    planned = (config.prompts_per_iteration, config.group_size) if is_rl else None
    deadline_s = config.training.rollouts.deadline_s if is_rl else config.evaluation_job.deadline_s
    refuse_beyond(name, pool, planned=planned, deadline_s=deadline_s)
