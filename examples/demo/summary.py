"""The figures of a demo, whether they prove anything, and what was learned in one sentence."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

GREEDY_WAS_RIGHT = 0.05
"""A greedy gain up to this is taken as none."""


@dataclass(frozen=True)
class Interval:
    """A paired difference in success with its 95 % interval, clustered by task."""

    mean: float
    low: float
    high: float

    @staticmethod
    def of(difference: dict[str, Any]) -> Interval:
        return Interval(difference["mean"], difference["low"], difference["high"])

    def __str__(self) -> str:
        return f"{self.mean:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


@dataclass(frozen=True)
class Figures:
    """Results of the evaluation jobs (`job.result`) and of the RL job."""

    baseline: dict[str, Any]
    baseline_greedy: dict[str, Any]
    trained: dict[str, Any]
    trained_greedy: dict[str, Any]
    blind: dict[str, Any]
    seconds: dict[str, float]
    iterations: int
    calls: int
    """Policy calls of the RL job."""
    model_id: str
    controls: dict[str, float] = field(default_factory=dict)
    """Success of players that need no model."""

    @property
    def gain(self) -> Interval:
        """Trained against baseline."""
        return Interval.of(self.trained["difference"])

    @property
    def blind_gap(self) -> Interval:
        """Blind against seeing, both with the trained policy: negative when seeing helps."""
        return Interval.of(self.blind["difference"])

    def to_json(self) -> dict[str, Any]:
        return {
            "baseline": _kept(self.baseline),
            "trained": _kept(self.trained),
            "greedy": {"baseline": self.baseline_greedy["success"], "trained": self.trained_greedy["success"]},
            "difference": {"mean": self.gain.mean, "low": self.gain.low, "high": self.gain.high},
            "blind": self.blind["success"],
            "blind_difference": {
                "mean": self.blind_gap.mean, "low": self.blind_gap.low, "high": self.blind_gap.high,
            },
            "controls": self.controls,
            "seconds": {stage: round(seconds, 1) for stage, seconds in self.seconds.items()},
            "iterations": self.iterations,
            "calls": self.calls,
            "model_id": self.model_id,
        }  # fmt: skip

    def shortfalls(self) -> list[str]:
        """What the figures fail to show; empty when the demo has proved its point."""
        found = []
        if self.gain.low <= 0:
            found.append(f"the gain in sampled success {self.gain} is not above 0 outside its interval")
        if self.blind_gap.high >= 0:
            found.append(
                f"the blind control is not beaten outside the interval: blind minus seeing is {self.blind_gap}"
            )
        for name, success in self.controls.items():
            if self.trained["success"] <= success:
                found.append(
                    f"the trained policy ({self.trained['success']:.2f}) is not above {name} ({success:.2f})"
                )
        return found

    def learned(self) -> str:
        """One plain sentence, derived from the figures."""
        before, after = self.baseline["success"], self.trained["success"]
        greedy_before, greedy_after = self.baseline_greedy["success"], self.trained_greedy["success"]
        if self.gain.low <= 0:
            return (
                f"Nothing that can be told from chance: sampled success went from {before:.2f} to {after:.2f}, "
                f"{self.gain}."
            )
        rose = f"sampled success rose from {before:.2f} to {after:.2f}"
        if greedy_after - greedy_before <= GREEDY_WAS_RIGHT:
            return (
                f"RL removed the noise that the model had copied from its demonstrator ({rose}); it taught no "
                f"new skill, since greedy decoding already reached {greedy_before:.2f} before and reaches "
                f"{greedy_after:.2f} now."
            )
        if after <= greedy_before:
            return (
                f"Mostly RL removed the noise that the model had copied from its demonstrator: {rose}, still "
                f"within what greedy decoding reached before ({greedy_before:.2f}); greedy decoding itself "
                f"rose to {greedy_after:.2f}."
            )
        return (
            f"RL taught more than its demonstrator showed: {rose}, above the {greedy_before:.2f} that the "
            f"model reached before even at its most careful (greedy), which itself rose to {greedy_after:.2f}."
        )


def _kept(result: dict[str, Any]) -> dict[str, float | int]:
    return {key: result[key] for key in ("success", "n", "mean_return")}
