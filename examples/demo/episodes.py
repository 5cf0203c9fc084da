"""Recorded episodes: choosing one that tells something, and reading its steps."""

from __future__ import annotations

import statistics
from typing import Any

from examples.demo.jobs import Job
from headrace.client import ApiClient

Trajectory = dict[str, Any]


def most_telling(api: ApiClient, baseline: Job, trained: Job) -> tuple[int, Trajectory, Trajectory]:
    """The task that gained most: (seed, its worst episode before, its best after)."""
    before, after = baseline["result"]["per_seed"], trained["result"]["per_seed"]
    seed = max(
        before.keys() & after.keys(),
        key=lambda key: (statistics.fmean(after[key]) - statistics.fmean(before[key]), -int(key)),
    )
    return int(seed), _episode(api, baseline, int(seed), min), _episode(api, trained, int(seed), max)


def _episode(api: ApiClient, job: Job, seed: int, choose: Any) -> Trajectory:
    rows = []
    while (page := api.rollouts(job["job_id"], limit=100, offset=len(rows))["rollouts"]) != []:
        rows += page
    of_seed = [row for row in rows if row["seed"] == seed and row["outcome_reward"] is not None]
    row = choose(of_seed, key=lambda row: row["outcome_reward"])
    return api.rollout(row["rollout_id"])["trajectory"]


def steps(trajectory: Trajectory) -> list[tuple[str, str]]:
    """(what the policy read, what it answered) of each turn."""
    return [(_text(op["observation"]), str(op["action"])) for op in trajectory["ops"]]


def end(trajectory: Trajectory) -> str:
    """The last observation, which no reply followed."""
    return _text(trajectory["final_observation"])


def outcome(trajectory: Trajectory) -> float:
    return trajectory["rewards"]["outcome_reward"]


def _text(observation: Any) -> str:
    """A task app of the SDK reports `{"observation": ...}`."""
    return str(observation["observation"] if isinstance(observation, dict) else observation)
