"""Which charts and figures a job page shows, by kind of job. A chart without a point is not shown."""

from __future__ import annotations

from headrace_dashboard.charts import Chart, Line, Section, Tile


def _episodes(title: str, prefix: str = "", min_points: int = 1) -> Section:
    """What the episodes show beside their rewards; the metrics of evaluations have a prefix."""

    def chart(key: str, title: str, hint: str, unit: str = "", **lines: tuple[str, str]) -> Chart:
        shown = (
            Line(prefix + name, label.replace("_", " "), tone=tone) for label, (name, tone) in lines.items()
        )
        return Chart(prefix.replace(".", "_") + key, title, tuple(shown), unit, False, min_points, hint)

    return Section(
        title,
        (
            Chart(
                prefix.replace(".", "_") + "events",
                "Events",
                unit="%",
                is_wide=True,
                min_points=min_points,
                hint="Share of episodes in which each event or achievement happened, the most frequent ones.",
                prefix=f"{prefix}events.",
                suffix=".frequency",
            ),
            chart(
                "invalid", "Invalid actions", "Share of actions that the environment could not read.", "%",
                invalid=("health.invalid_action_rate", "bad"),
            ),
            chart(
                "truncated", "Cut short", "Episodes that a limit ended, and replies that ran into theirs.", "%",
                episodes=("rollouts.truncated_share", "warn"), replies=("stops.length_share", "2"),
            ),
            chart(
                "tokens", "Tokens per episode", "Prompts are counted whole at each call.", "tokens",
                prompt=("tokens.prompt_per_episode", "2"), sampled=("tokens.sampled_per_episode", "1"),
                longest_sampled=("tokens.sampled_max", "3"),
            ),
            chart(
                "agent_latency", "Time of an agent op", "One call to the policy, as its gateway measures it.", "s",
                mean=("latency.agent_s", "1"), p95=("latency.agent_p95_s", "2"),
            ),
            chart(
                "env_latency", "Time of an env op", "One step of the environment, as the task app reports it.", "s",
                mean=("latency.env_s", "1"), p95=("latency.env_p95_s", "2"),
            ),
        ),
    )  # fmt: skip


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
                hint="Mean outcome reward of an iteration, with the band from its lowest to its highest.",
            ),
            Chart(
                "success",
                "Success rate",
                (Line("success.rate", "success", tone="good"),),
                unit="%",
                hint="Share of rollouts with an outcome reward of at least 1.",
            ),
            Chart(
                "return",
                "Return",
                (Line("return.mean", "mean"),),
                hint="Mean of what is trained on: the outcome, with event rewards where the credit says so.",
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

SECTIONS: dict[str, tuple[Section, ...]] = {
    "rl": (*_RL, _episodes("Episodes"), *_EVAL, _episodes("Evaluation episodes", "eval.", min_points=2)),
    "sft": _SFT,
    "eval": (*_EVAL, _episodes("Episodes", "eval.", min_points=2)),
}

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
        Tile("eval.health.invalid_action_rate", "Invalid actions", "percent"),
        Tile("eval.rollouts.truncated_share", "Cut short", "percent"),
        Tile("eval.tokens.sampled_per_episode", "Sampled tokens per episode"),
        Tile("eval.latency.agent_s", "Seconds per agent op"),
    ),
}


def charts_of(job_type: str) -> dict[str, Chart]:
    """Charts of a kind of job by key."""
    return {chart.key: chart for section in SECTIONS.get(job_type, ()) for chart in section.charts}
