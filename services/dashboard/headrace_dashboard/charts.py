"""Which charts a job page shows, by kind of job. A chart without a point is not shown."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Line:
    """One metric in a chart. `role`: `line`, `low` and `high` (edges of a band), `stack`."""

    name: str
    label: str
    role: str = "line"
    tone: str = "1"
    """Number of the colour, or `good`, `bad`, `warn`, `mute`."""


@dataclass(frozen=True)
class Chart:
    key: str
    title: str
    lines: tuple[Line, ...]
    unit: str = ""
    is_wide: bool = False
    min_points: int = 1
    """Steps below which it is not drawn."""
    hint: str = ""
    """What a reader looks for in it, in one sentence."""

    @property
    def names(self) -> list[str]:
        return [line.name for line in self.lines]

    def for_browser(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Section:
    title: str
    charts: tuple[Chart, ...]


@dataclass(frozen=True)
class Tile:
    """One figure at the top of the page: the newest value of a metric."""

    name: str
    label: str
    style: str = "number"
    """`number` or `percent`."""


_RL = (
    Section(
        "Reward",
        (
            Chart(
                "reward",
                "Reward",
                (
                    Line("reward.min", "min", "low"),
                    Line("reward.max", "max", "high"),
                    Line("reward.mean", "mean"),
                ),
                is_wide=True,
                hint="Mean return of an iteration, with the band from its lowest to its highest.",
            ),
            Chart(
                "success",
                "Success rate",
                (Line("success.rate", "success", tone="good"),),
                unit="%",
                hint="Share of rollouts with a return of at least 1.",
            ),
        ),
    ),
    Section(
        "Learning",
        (
            Chart("loss", "Loss", (Line("train.loss", "loss"),), hint="Policy loss of the step."),
            Chart(
                "grad_norm",
                "Gradient norm",
                (Line("train.grad_norm", "norm"),),
                hint="Norm before clipping.",
            ),
            Chart(
                "entropy",
                "Entropy",
                (Line("train.entropy", "entropy"),),
                unit="nats",
                hint="Mean entropy of the sampled tokens.",
            ),
            Chart(
                "clipping",
                "Clipped tokens",
                (Line("train.clip_low", "low"), Line("train.clip_high", "high", tone="2")),
                unit="%",
                hint="Share of tokens whose ratio left the clip range.",
            ),
            Chart(
                "mismatch",
                "Trainer–engine mismatch",
                (Line("mismatch.k3", "k3"), Line("probe.max_abs", "probe |Δ|", tone="2")),
                hint="How far the engine's logprobs are from the trainer's; near zero is right.",
            ),
            Chart(
                "staleness",
                "Staleness",
                (Line("staleness.mean", "mean"), Line("staleness.max", "max", tone="2")),
                unit="versions",
                hint="Versions between what played a rollout and what learns from it.",
            ),
        ),
    ),
    Section(
        "Policy health",
        (
            Chart(
                "throughput",
                "Sampling speed",
                (Line("policy.tokens_per_s", "tokens/s"),),
                unit="tokens/s",
                hint="Tokens sampled per second.",
            ),
            Chart(
                "latency",
                "Call latency",
                (Line("policy.latency_s", "latency"),),
                unit="s",
                hint="Mean time of one call to the policy.",
            ),
            Chart(
                "invalid",
                "Invalid actions",
                (Line("health.invalid_action_rate", "invalid", tone="bad"),),
                unit="%",
                hint="Share of actions that the environment could not read.",
            ),
            Chart(
                "outcomes",
                "Rollouts by outcome",
                (
                    Line("rollouts.scored", "scored", "stack", "good"),
                    Line("rollouts.policy_failed", "policy failed", "stack", "warn"),
                    Line("rollouts.infra_failed", "infrastructure failed", "stack", "bad"),
                    Line("rollouts.cancelled", "cancelled", "stack", "mute"),
                ),
                hint="All planned rollouts of an iteration; the parts add up.",
            ),
            Chart(
                "length",
                "Sampled tokens per rollout",
                (Line("length.sampled_mean", "mean"), Line("length.sampled_max", "max", tone="2")),
                unit="tokens",
                hint="Length of what the policy said in an episode.",
            ),
            Chart(
                "time",
                "Time of an iteration",
                (
                    Line("time.rollout_s", "rollouts", "stack", "1"),
                    Line("time.train_s", "training", "stack", "2"),
                    Line("time.publish_s", "publish", "stack", "3"),
                    Line("time.checkpoint_s", "checkpoint", "stack", "mute"),
                ),
                unit="s",
                hint="Where the seconds go.",
            ),
        ),
    ),
)

_SFT = (
    Section(
        "Learning",
        (
            Chart(
                "loss",
                "Loss",
                (Line("train.loss", "training"), Line("val.loss", "validation", tone="2")),
                is_wide=True,
                hint="Mean negative log-likelihood of the assistant's tokens.",
            ),
            Chart(
                "grad_norm",
                "Gradient norm",
                (Line("train.grad_norm", "norm"),),
                hint="Norm before clipping.",
            ),
            Chart("rate", "Learning rate", (Line("train.learning_rate", "rate"),)),
            Chart("tokens", "Tokens per step", (Line("train.tokens", "tokens"),), unit="tokens"),
        ),
    ),
)

_EVAL = (
    Section(
        "Evaluation",
        (
            Chart(
                "eval_reward",
                "Mean reward",
                (Line("eval.reward_mean", "reward"),),
                is_wide=True,
                min_points=2,
            ),
            Chart(
                "eval_success",
                "Success rate",
                (Line("eval.success", "success", tone="good"),),
                unit="%",
                min_points=2,
            ),
        ),
    ),
)

SECTIONS: dict[str, tuple[Section, ...]] = {"rl": (*_RL, *_EVAL), "sft": _SFT, "eval": _EVAL}

TILES: dict[str, tuple[Tile, ...]] = {
    "rl": (
        Tile("reward.mean", "Reward, mean"),
        Tile("success.rate", "Success rate", "percent"),
        Tile("train.loss", "Loss"),
        Tile("policy.tokens_per_s", "Tokens per second"),
        Tile("staleness.max", "Staleness, max"),
    ),
    "sft": (
        Tile("train.loss", "Training loss"),
        Tile("val.loss", "Validation loss"),
        Tile("train.grad_norm", "Gradient norm"),
        Tile("train.learning_rate", "Learning rate"),
    ),
    "eval": (
        Tile("eval.reward_mean", "Reward, mean"),
        Tile("eval.success", "Success rate", "percent"),
        Tile("eval.n", "Rollouts"),
    ),
}


def charts_of(job_type: str) -> dict[str, Chart]:
    """Charts of a kind of job by key."""
    return {chart.key: chart for section in SECTIONS.get(job_type, ()) for chart in section.charts}
