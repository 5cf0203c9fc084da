"""The metrics of an iteration, and those of an evaluation as points and as the job's report."""

from __future__ import annotations

from typing import Any

import pytest
from tests.fakes.trajectories import VERSION, make_call, make_trajectory

from headrace.contracts.policy import PolicyVersion
from headrace.contracts.trajectory import EventReward, Op, Rewards, Trajectory
from headrace.rl.staleness import PolicyHistory
from headrace_trainer import accounting, evaluation


def episode(reward: float, *events: tuple[str, float], seed: int = 0, **changes: Any) -> Trajectory:
    call = make_call(0, [1, 2], [3, 4, 5], finish_reason="stop", latency_s=0.5)
    rewards = Rewards(
        outcome_reward=reward, event_rewards=tuple(EventReward(turn=0, key=k, value=v) for k, v in events)
    )
    return make_trajectory(call).model_copy(update={"rewards": rewards, "seed": seed, **changes})


def test_an_iteration_tells_rewards_from_returns_and_has_its_staleness() -> None:
    played = [episode(1.0, ("wood", 0.5)), episode(0.0)]
    later = PolicyVersion(timeline=VERSION.timeline, n=VERSION.n + 2)
    history = PolicyHistory.start(VERSION).append(PolicyVersion(timeline=1, n=1)).append(later)
    found = accounting.rollout_metrics(played, [1.5, 0.0], history, later)
    assert (found["reward.mean"], found["return.mean"], found["success.rate"]) == (0.5, 0.75, 0.5)
    assert (found["events.wood.frequency"], found["events.wood.mean"]) == (0.5, 0.25)
    assert (found["tokens.prompt"], found["tokens.sampled"], found["latency.agent_s"]) == (4, 6, 0.5)
    assert (found["staleness.mean"], found["staleness.max"]) == (2, 2)
    assert "health.invalid_action_rate" not in found


def test_an_evaluation_has_the_same_measures_under_its_prefix_and_in_its_report() -> None:
    ops = (Op(index=0, is_invalid_action=True, latency_s=0.25), Op(index=1, is_invalid_action=False))
    played = [episode(1.0, ("wood", 0.5), seed=3, ops=ops), episode(0.0, seed=4, is_truncated=True)]
    report = evaluation.report(played, success_at=0.5)
    metrics = report.metrics()
    assert all(name.startswith("eval.") for name in metrics)
    assert (metrics["eval.reward_mean"], metrics["eval.reward_std"], metrics["eval.n"]) == (0.5, 0.5, 2.0)
    assert metrics["eval.events.wood.frequency"] == 0.5
    assert metrics["eval.health.invalid_action_rate"] == 0.5
    told = report.to_json()
    assert told["per_seed"] == {"3": [1.0], "4": [0.0]}
    assert (told["calls"], told["sampled_tokens"], told["truncated_share"], told["length_stop_share"]) == (
        2,
        6,
        0.5,
        0,
    )
    assert told["events"] == {"wood": {"frequency": 0.5, "mean": 0.25}}
    assert told["health"] == {"invalid_action_rate": 0.5}
    assert told["latency"]["env_s"] == 0.25
    assert told["tokens"]["prompt_per_episode"] == 2.0


def test_a_returned_reward_of_any_size_ends_no_evaluation() -> None:
    report = evaluation.report([episode(1.7e308), episode(1.7e308)], success_at=1.0)
    assert report.mean_return == pytest.approx(1.7e308)
