"""Keys of one meaning: equal values are fine; different ones are an error in our own command.

For other clients, whose shipped configs do differ, one key wins and a note names the loser.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from headrace.config.notes import Replaced, shown
from headrace.config.ops import first_turns, n_agent_ops
from headrace.config.paths import ABSENT, Raw, get, with_value, without, written
from headrace.config.rl import DEFAULT_GROUP_SIZE, DEFAULT_PROMPTS
from headrace.contracts.job import JobType


@dataclass(frozen=True)
class Synonyms:
    """Keys of one meaning, the winner first."""

    keys: tuple[str, ...]


SYNONYMS: dict[JobType, tuple[Synonyms, ...]] = {
    JobType.RL: (
        Synonyms(("rollout.max_turns", "training.rollouts.max_turns", "training.max_turns")),
        Synonyms(("training.group_size", "training.rollouts.rollouts_per_prompt")),
        Synonyms(("rollout.max_concurrent_rollouts", "training.rollouts.max_concurrent")),
        Synonyms(("rollout.ops", "training.rollouts.ops")),
        Synonyms(("training.kl_coef", "training.kl")),
        Synonyms(("training.rollouts.split", "rollout.env_config.split")),
    ),
    JobType.SFT: (
        Synonyms(("hyperparameters.batch_size", "hyperparameters.global_batch")),
        Synonyms(("job.data", "job.data_path")),
    ),
    JobType.EVAL: (
        Synonyms(("evaluation_job.temperature", "rollout.policy_config.temperature")),
        Synonyms(("evaluation_job.split", "rollout.env_config.split")),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Difference:
    """A key whose value another one of its meaning contradicts."""

    winner: str
    """The winning key or product, as a person writes it."""
    winning: Any
    loser: str
    """Dotted."""
    losing: Any

    @property
    def sentence(self) -> str:
        section, _, key = self.loser.rpartition(".")
        loser = key if self.winner.startswith(f"[{section}] ") else written(self.loser)
        return (
            f"{self.winner} and {loser} mean the same and differ "
            f"({shown(self.winning)} and {shown(self.losing)}); keep one"
        )

    @property
    def replaced(self) -> Replaced:
        why = f"{self.winner} means the same and wins"
        return Replaced(written(self.loser), self.losing, self.winning, why)


def differences(job_type: JobType, raw: Raw) -> list[Difference]:
    """Every key of `raw` that contradicts another one of its meaning."""
    found = []
    for same in SYNONYMS[job_type]:
        given = [(key, get(raw, key)) for key in same.keys]
        given = [(key, value) for key, value in given if value is not ABSENT]
        for key, value in given[1:]:
            winner, winning = given[0]
            if not _are_equal(value, winning):
                found.append(Difference(written(winner), winning, key, value))
    if job_type is JobType.RL:
        found += [difference for find in (_start, _prompts, _episodes) if (difference := find(raw))]
    return found


def settle(job_type: JobType, raw: Raw) -> tuple[Raw, list[Replaced]]:
    """`raw` with the losers of all differences left out, and an account of each."""
    replaced = []
    while found := differences(job_type, raw):
        for difference in found:
            replaced.append(difference.replaced)
            raw = without(raw, difference.loser)
    if job_type is JobType.RL:
        raw, shortened = _shorten_ops(raw)
        replaced += shortened
    return raw, replaced


def _are_equal(a: Any, b: Any) -> bool:
    try:
        return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True) or (
            isinstance(a, int | float) and isinstance(b, int | float) and a == b
        )
    except (TypeError, ValueError, RecursionError):  # what JSON lacks is refused elsewhere
        return False


def _whole(raw: Raw, key: str) -> int | None:
    value = get(raw, key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _start(raw: Raw) -> Difference | None:
    """`[policy] model_name` and `source` of newer clients against `[model]`, over which they win."""
    named = [key for key in ("policy.model_name", "policy.source") if get(raw, key) is not ABSENT]
    for key in ("model.base", "model.source"):
        value = get(raw, key)
        if len(named) == 1 and value is not ABSENT and not _are_equal(value, get(raw, named[0])):
            return Difference(written(named[0]), get(raw, named[0]), key, value)
    return None


def _prompts(raw: Raw) -> Difference | None:
    batch, asked = _whole(raw, "training.batch_size"), _whole(raw, "training.rollouts.prompts_per_iteration")
    times = _whole(raw, "rollout.batches_per_step") or 1
    if batch is None or asked is None or batch * times == asked:
        return None
    name = "[training] batch_size" + (" x [rollout] batches_per_step" if times > 1 else "")
    return Difference(name, batch * times, "training.rollouts.prompts_per_iteration", asked)


def _episodes(raw: Raw) -> Difference | None:
    """`[rollout] episodes_per_batch` against the product of which it is another name."""
    episodes = _whole(raw, "rollout.episodes_per_batch")
    members = (
        _whole(raw, "training.group_size")
        or _whole(raw, "training.rollouts.rollouts_per_prompt")
        or DEFAULT_GROUP_SIZE
    )
    batch, times = _whole(raw, "training.batch_size"), _whole(raw, "rollout.batches_per_step") or 1
    prompts = batch * times if batch else _whole(raw, "training.rollouts.prompts_per_iteration")
    if episodes is None:
        return None
    if prompts is not None and prompts * members != episodes:
        name = f"prompts x rollouts per prompt ({prompts} x {members})"
        return Difference(name, prompts * members, "rollout.episodes_per_batch", episodes)
    if prompts is None and episodes % members:
        name = f"a whole number of groups of {members} ([training] group_size)"
        return Difference(name, DEFAULT_PROMPTS * members, "rollout.episodes_per_batch", episodes)
    return None


def _shorten_ops(raw: Raw) -> tuple[Raw, list[Replaced]]:
    """A plan of more turns than `max_turns` is cut to them."""
    key = "rollout.ops" if get(raw, "rollout.ops") is not ABSENT else "training.rollouts.ops"
    ops, turns = get(raw, key), _max_turns(raw)
    if turns is None or not isinstance(ops, list) or not all(isinstance(op, str) for op in ops):
        return raw, []
    if n_agent_ops(ops) <= turns:
        return raw, []
    kept = list(first_turns(ops, turns))
    why = f"it asks the policy {n_agent_ops(ops)} times and max_turns = {turns} wins"
    return with_value(raw, key, kept), [Replaced(written(key), ops, kept, why)]


def _max_turns(raw: Raw) -> int | None:
    keys: tuple[str, ...] = SYNONYMS[JobType.RL][0].keys
    given: list[int] = [turns for key in keys if (turns := _whole(raw, key)) is not None]
    return given[0] if given else None
