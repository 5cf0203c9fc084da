"""What a set of episodes shows, as numbers with names: events, tokens, actions, latencies, stops.

Everything comes from structured data (rewards, the gateway's calls, the app's `info`), never from
text that is searched. Linear in the data. A number that nobody reported, or that is not finite, is
absent: it is never 0. Knows no job and writes nothing; `docs/metrics.md` lists the names.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headrace.contracts.policy import Call
from headrace.contracts.trajectory import Trajectory
from headrace.rl.event_rates import event_rates

STOPS = ("stop", "length", "tool_calls")
"""How a reply of an engine ends; any other reason is counted as `other`."""

Measures = dict[str, float]


def reward_measures(rewards: Sequence[float], returns: Sequence[float]) -> Measures:
    """Spread of the outcome rewards, and the mean of what is trained on (see `credit.episode_return`).

    >>> reward_measures([1.0, 0.0], [1.5, 0.0])["return.mean"]
    0.75
    """
    average = mean(rewards)
    return _finite(
        {
            "reward.mean": average,
            "reward.std": math.sqrt(mean([_square(value - average) for value in rewards])),
            "reward.min": min(rewards),
            "reward.max": max(rewards),
            "success.rate": mean([float(value >= 1) for value in rewards]),
            "return.mean": mean(returns),
        }
    )


def episode_measures(trajectories: Sequence[Trajectory]) -> Measures:
    """Events, tokens, invalid actions, latencies, stops and truncation over episodes (at least one)."""
    answered = [[call for call in t.calls if call.error is None] for t in trajectories]
    measures: Measures = {
        "turns.mean": mean([float(len(calls)) for calls in answered]),
        "rollouts.truncated_share": mean([float(t.is_truncated) for t in trajectories]),
        **_tokens(answered),
        **_stops(call for calls in answered for call in calls),
        **_latencies(trajectories, answered),
    }
    flags = [
        float(op.is_invalid_action) for t in trajectories for op in t.ops if op.is_invalid_action is not None
    ]
    if flags:
        measures["health.invalid_action_rate"] = mean(flags)
    for key, rate in event_rates(trajectories).items():
        measures[f"events.{key}.frequency"] = rate.frequency
        measures[f"events.{key}.mean"] = rate.mean
    return _finite(measures)


def nested(measures: Mapping[str, float]) -> dict[str, Any]:
    """Measures as a report has them: a heading per first word, and per event key.

    >>> nested({"tokens.prompt": 8.0, "events.wood.mean": 0.5})
    {'tokens': {'prompt': 8.0}, 'events': {'wood': {'mean': 0.5}}}
    """
    tree: dict[str, Any] = {}
    for name, value in measures.items():
        *headings, last = name.split(".")
        place = tree
        for heading in headings:
            place = place.setdefault(heading, {})
        place[last] = value
    return tree


def mean(values: Sequence[float]) -> float:
    """The mean; infinite values and sums that overflow make it infinite or NaN, never an error.

    >>> mean([1e308, 1e308, 1e308])
    1e+308
    """
    try:
        return math.fsum(values) / len(values)
    except OverflowError:
        return sum(value / len(values) for value in values)


def percentile_95(values: Sequence[float]) -> float:
    """The smallest value that at least 95 % of the values do not exceed (nearest rank).

    >>> percentile_95([float(n) for n in range(1, 101)]), percentile_95([3.0])
    (95.0, 3.0)
    """
    return sorted(values)[math.ceil(0.95 * len(values)) - 1]


def _tokens(answered: Sequence[Sequence[Call]]) -> Measures:
    prompt = [sum(_prompt_lengths(calls)) for calls in answered]
    sampled = [sum(len(call.sampled_ids) for call in calls) for calls in answered]
    return {
        "tokens.prompt": float(sum(prompt)),
        "tokens.prompt_per_episode": sum(prompt) / len(prompt),
        "tokens.sampled": float(sum(sampled)),
        "tokens.sampled_per_episode": sum(sampled) / len(sampled),
        "tokens.sampled_max": float(max(sampled)),
    }


def _prompt_lengths(calls: Sequence[Call]) -> list[int]:
    """Whole prompts, in tokens: a call that continues another one has that one's tokens before its own."""
    ends: dict[int, int] = {}
    lengths = []
    for call in calls:
        before = 0 if call.parent is None else ends.get(call.parent, 0)
        lengths.append(before + len(call.new_prompt_ids))
        ends[call.index] = lengths[-1] + len(call.sampled_ids)
    return lengths


def _stops(calls: Iterable[Call]) -> Measures:
    counts = Counter(
        call.finish_reason if call.finish_reason in STOPS else "other"
        for call in calls
        if call.finish_reason is not None
    )
    n = counts.total()
    return {f"stops.{reason}_share": counts[reason] / n for reason in (*STOPS, "other")} if n else {}


def _latencies(trajectories: Sequence[Trajectory], answered: Sequence[Sequence[Call]]) -> Measures:
    """Seconds per op: of an agent op as the gateway measured it, of an env op as the app reports it."""
    ops = {
        "agent": [call.latency_s for calls in answered for call in calls],
        "env": [op.latency_s for t in trajectories for op in t.ops if op.latency_s is not None],
    }
    measures: Measures = {}
    for op, given in ops.items():
        values = [value for value in given if value >= 0 and math.isfinite(value)]
        if values:
            measures[f"latency.{op}_s"] = mean(values)
            measures[f"latency.{op}_p95_s"] = percentile_95(values)
    return measures


def _square(value: float) -> float:
    return value * value


def _finite(measures: Measures) -> Measures:
    return {name: value for name, value in measures.items() if math.isfinite(value)}
