"""How often each event or achievement happens in a set of episodes, under keys that are safe as names.

Keys are a task app's text, so they are bounded in number and length and hold only letters, digits,
`_` and `-`: a metric's name can be put into a file, a URL and a page.
"""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.contracts.trajectory import Trajectory

MAX_KEYS = 50
MAX_KEY_LENGTH = 40
OTHER = "other"
"""Takes what is beyond `MAX_KEYS`, and an app's own key of this name."""
UNNAMED = "unnamed"
_ACHIEVEMENTS = ("achievements", "unique_achievements", "milestone_events")
"""Keys of `metrics.details` under which the contract's task apps list what an episode achieved."""


@dataclass(frozen=True)
class EventRate:
    frequency: float
    """Share of the episodes in which it happened at least once."""
    mean: float
    """Sum of its values in an episode, averaged over all episodes."""


def event_rates(trajectories: Sequence[Trajectory]) -> dict[str, EventRate]:
    """Rates by safe key, at most `MAX_KEYS` and `OTHER`: the keys of most episodes, then by name.

    An event is an event reward of any value, or an achievement in `metrics.details` whose key no
    event reward of the episode has: a name in a list or a mapping there, or a flag that is true.
    """
    n = len(trajectories)
    episodes = [_events_of(trajectory) for trajectory in trajectories]
    n_with: dict[str, int] = defaultdict(int)
    for events in episodes:
        for key in events:
            n_with[key] += 1
    ranked = sorted(n_with.keys() - {OTHER}, key=lambda key: (-n_with[key], key))
    kept = set(ranked[:MAX_KEYS])
    shares: dict[str, int] = defaultdict(int)
    means: dict[str, float] = defaultdict(float)
    for events in episodes:
        for key in {key if key in kept else OTHER for key in events}:
            shares[key] += 1
        for key, value in events.items():
            means[key if key in kept else OTHER] += value / n
    return {
        key: EventRate(shares[key] / n, means[key]) for key in (*ranked[:MAX_KEYS], OTHER) if key in shares
    }


def safe_key(text: str) -> str:
    """A task app's key as part of a metric's name.

    >>> safe_key("collect wood"), safe_key("a.b/../<script>"), safe_key("  "), safe_key("x" * 99) == "x" * 40
    ('collect_wood', 'a_b_script', 'unnamed', True)
    """
    given = unicodedata.normalize("NFC", text[: 4 * MAX_KEY_LENGTH])
    words = "".join(c if c.isalnum() or c in "-_" else " " for c in given).split()
    return "_".join(words)[:MAX_KEY_LENGTH] or UNNAMED


def _events_of(trajectory: Trajectory) -> dict[str, float]:
    """Sum of the values of each event of one episode, by safe key."""
    events: dict[str, float] = defaultdict(float)
    for event in trajectory.rewards.event_rewards:
        events[safe_key(event.key)] += event.value
    achieved: dict[str, float] = defaultdict(float)
    for name, value in _achievements(trajectory.details):
        achieved[safe_key(name)] += value
    return {**achieved, **events}


def _achievements(details: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """(name, how often or how much) of what `metrics.details` says was achieved."""
    for name, value in details.items():
        if value is True:
            yield name, 1.0
        elif name in _ACHIEVEMENTS and isinstance(value, Mapping):
            yield from _amounts(value)
        elif name in _ACHIEVEMENTS and isinstance(value, Iterable) and not isinstance(value, str):
            yield from ((item, 1.0) for item in value if isinstance(item, str))


def _amounts(given: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in given.items():
        if isinstance(value, int | float) and 0 < abs(value) < 1e300:  # and so is no NaN
            yield str(name), float(value)
