"""A config against the task app and the pools: what is impossible, what may be chosen, what is suggested."""

from __future__ import annotations

import re
from collections.abc import Sequence

from headrace.client import ApiClient
from headrace.config.evaluation import EvalConfig
from headrace.config.pools import pools as shipped_pools
from headrace.config.rl import RLConfig
from headrace.contracts.task_app import TaskFacts, unsuitable
from headrace.errors import ConfigError, NotFound
from headrace_cli.asking import ask, choose
from headrace_cli.session import Json, Session
from headrace_cli.submission import Submission

_RANGE = re.compile(r"(-?\d+)\s*(?:-|to|\.\.)\s*(-?\d+)")


def known_pools(api: ApiClient | None) -> list[Json]:
    """The API's pools; those that ship with the package when no API is asked."""
    if api is not None:
        try:
            return api.pools()
        except NotFound:  # an API without the route has the shipped ones
            pass
    return [
        {"name": name, "default_topology": pool.default_topology, "topologies": list(pool.topologies)}
        for name, pool in shipped_pools().items()
    ]


def suggestions(submission: Submission, facts: TaskFacts, pools: Sequence[Json]) -> Json:
    """What the config may say: the app's splits and seeds, the pool's topologies, the pools."""
    seeds = _whole_range(facts, _split(submission))
    pool = _pool(submission, pools)
    return {
        "splits": list(facts.splits),
        "seeds": {"start": seeds[0], "count": seeds[1] - seeds[0] + 1} if seeds else None,
        "topologies": _topologies(pool) if pool else [],
        "pools": [row["name"] for row in pools],
    }


def offered(session: Session, submission: Submission, facts: TaskFacts, pools: Sequence[Json]) -> Submission:
    """The config with what a person chose where it is silent and there is a choice."""
    if not session.can_ask:
        return submission
    return _offer_topology(_offer_seeds(_offer_split(submission, facts), facts), pools)


def refuse_impossible(submission: Submission, facts: TaskFacts, pools: Sequence[Json]) -> None:
    """Raise ConfigError that lists each split, seed, pool or topology that is not there, and what is."""
    problems = _misplaced(submission, pools)
    for section, split, seeds in _plays(submission):
        problems += [
            f"[{section}] {problem}" for problem in unsuitable(facts, split=split, seeds=seeds or ())
        ]
    if problems:
        problems = [f"{submission.path}: {problem}" for problem in dict.fromkeys(problems)]
        raise ConfigError(
            "; ".join(problems), problems=problems, suggestions=suggestions(submission, facts, pools)
        )


def overlap(submission: Submission, facts: TaskFacts) -> str | None:
    """A sentence about evaluation seeds that are trained on; None when there are none."""
    config = submission.config
    if not isinstance(config, RLConfig) or config.evaluation is None:
        return None
    shared = list(config.evaluated_training_seeds)
    is_same_split = config.evaluation.split in (None, config.split)
    whole = _whole_range(facts, config.split)
    if config.training_seeds is None and whole and is_same_split:
        low, high = whole
        shared = [seed for seed in config.evaluation.seeds if low <= seed <= high]
    if not shared:
        return None
    shown = ", ".join(map(str, shared[:5])) + (", ..." if len(shared) > 5 else "")
    return (
        f"{len(shared)} evaluation seed{'s are' if len(shared) > 1 else ' is'} among the training seeds "
        f"({shown}), so what they measure is not held out"
    )


def _plays(submission: Submission) -> list[tuple[str, str | None, Sequence[int] | None]]:
    """(section, split, seeds) of each kind of episode that the job plays."""
    match submission.config:
        case RLConfig() as config:
            plays: list[tuple[str, str | None, Sequence[int] | None]] = [
                ("training.rollouts", config.split, config.training_seeds)
            ]
            if config.evaluation is not None and config.evaluation.seeds:
                split = config.evaluation.split or config.split
                plays.append(("evaluation", split, config.evaluation.seeds))
            return plays
        case EvalConfig() as config:
            return [("evaluation_job", config.evaluation_job.split, config.evaluation_job.seeds)]
        case _:
            return []


def _misplaced(submission: Submission, pools: Sequence[Json]) -> list[str]:
    backend, pool = submission.config.backend, _pool(submission, pools)
    if pool is None:
        names = ", ".join(row["name"] for row in pools)
        return [f"[backend] compute_pool = {backend.compute_pool!r} is not known; pools: {names}"]
    known = _topologies(pool)
    if backend.topology_id is not None and backend.topology_id not in known:
        return [
            f"[backend] topology_id = {backend.topology_id!r} is not known; topologies of the pool "
            f"{pool['name']}: {', '.join(known)}"
        ]
    return []


def _pool(submission: Submission, pools: Sequence[Json]) -> Json | None:
    """The pool that the config names, else the default one, which is the first."""
    name = submission.config.backend.compute_pool
    return next((row for row in pools if name in (None, row["name"])), None)


def _topologies(pool: Json) -> list[str]:
    return [
        str(row.get("id") or row.get("name")) if isinstance(row, dict) else row for row in pool["topologies"]
    ]


def _split(submission: Submission) -> str | None:
    """The split that the job plays first."""
    return next((split for _, split, _ in _plays(submission)), None)


def _whole_range(facts: TaskFacts, split: str | None) -> tuple[int, int] | None:
    """First and last seed of a split, of the default one where the app has no such split."""
    is_known = split is not None and split in facts.splits
    ranges = facts.ranges(split if is_known else facts.default_split)
    return ranges[0] if ranges else None


def _offer_split(submission: Submission, facts: TaskFacts) -> Submission:
    is_rl = isinstance(submission.config, RLConfig)
    section = "training.rollouts" if is_rl else "evaluation_job"
    if _split(submission) is not None or len(facts.splits) < 2:
        return submission
    default = facts.splits.index(facts.default_split) if facts.default_split in facts.splits else 0
    chosen = choose("Splits of the task app", facts.splits, default=default + 1)
    assert chosen is not None
    if facts.splits[chosen] == facts.default_split:
        return submission  # the config may stay silent
    return submission.changed(section, {"split": facts.splits[chosen]})


def _offer_seeds(submission: Submission, facts: TaskFacts) -> Submission:
    config = submission.config
    if not isinstance(config, RLConfig) or config.training_seeds is not None:
        return submission
    whole = _whole_range(facts, config.split)
    if whole is None:
        return submission

    def read(answer: str) -> tuple[int, int]:
        match = _RANGE.fullmatch(answer)
        if match is None:
            raise ValueError("write the first and the last seed, like 0-99")
        first, last = int(match[1]), int(match[2])
        if problems := unsuitable(facts, split=config.split, seeds=(first, last)):
            raise ValueError(problems[0])
        if last < first:
            raise ValueError("the first seed is above the last")
        return first, last

    first, last = ask("Training seeds (first-last)", f"{whole[0]}-{whole[1]}", read)
    if (first, last) == whole:
        return submission
    return submission.changed("training.rollouts", {"seeds": {"start": first, "count": last - first + 1}})


def _offer_topology(submission: Submission, pools: Sequence[Json]) -> Submission:
    pool = _pool(submission, pools)
    if pool is None or submission.config.backend.topology_id is not None:
        return submission
    known = _topologies(pool)
    if len(known) < 2:
        return submission
    chosen = choose(
        f"Topologies of the pool {pool['name']}", known, default=known.index(pool["default_topology"]) + 1
    )
    assert chosen is not None
    return submission.changed("backend", {"topology_id": known[chosen]})
