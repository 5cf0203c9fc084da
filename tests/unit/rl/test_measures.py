from __future__ import annotations

import doctest
import math
from typing import Any

import pytest
from tests.fakes.trajectories import make_call, make_trajectory

from headrace.contracts.policy import CallError
from headrace.contracts.trajectory import EventReward, Op, Rewards, Trajectory
from headrace.rl import event_rates, measures
from headrace.rl.event_rates import MAX_KEYS, EventRate
from headrace.rl.measures import episode_measures, nested, percentile_95, reward_measures


def episode(
    *calls: Any, events: tuple[tuple[str, float], ...] = (), ops: tuple[Op, ...] = (), **changes: Any
) -> Trajectory:
    rewards = Rewards(
        outcome_reward=1.0, event_rewards=tuple(EventReward(turn=0, key=k, value=v) for k, v in events)
    )
    return make_trajectory(*calls).model_copy(update={"rewards": rewards, "ops": ops, **changes})


def test_examples_in_the_docstrings_hold() -> None:
    for module in (measures, event_rates):
        result = doctest.testmod(module)
        assert (result.failed, result.attempted > 0) == (0, True)


def test_rewards_and_returns_are_told_apart() -> None:
    assert reward_measures([1.0, 0.0, 0.5, 0.5], [1.5, 0.0, 0.5, 1.0]) == {
        "reward.mean": 0.5,
        "reward.std": pytest.approx(math.sqrt(0.125)),
        "reward.min": 0.0,
        "reward.max": 1.0,
        "success.rate": 0.25,
        "return.mean": 0.75,
    }


def test_an_event_counts_once_per_episode_and_its_values_add_up() -> None:
    found = episode_measures(
        [
            episode(events=(("wood", 0.5), ("wood", 0.25), ("fell", -1.0))),
            episode(events=(("wood", 0.25),)),
            episode(),
            episode(events=(("idle", 0.0),)),
        ]
    )
    assert {name: value for name, value in found.items() if name.startswith("events.")} == {
        "events.wood.frequency": 0.5, "events.wood.mean": 0.25,
        "events.fell.frequency": 0.25, "events.fell.mean": -0.25,
        "events.idle.frequency": 0.25, "events.idle.mean": 0.0,
    }  # fmt: skip


def test_achievements_in_details_count_unless_an_event_reward_has_their_key() -> None:
    listed = episode(details={"achievements": ["wood", "stone", "wood"], "score": 9.0, "mode": "fast"})
    mapped = episode(details={"achievements": {"wood": True, "stone": 0, "iron": 3}, "correct": True})
    doubled = episode(events=(("wood", 4.0),), details={"unique_achievements": ["wood"], "correct": False})
    assert event_rates.event_rates([listed, mapped, doubled]) == {
        "wood": EventRate(1.0, 2 / 3 + 1 / 3 + 4 / 3),
        "correct": EventRate(1 / 3, 1 / 3),
        "iron": EventRate(1 / 3, 1.0),
        "stone": EventRate(1 / 3, 1 / 3),
    }


def test_details_of_any_shape_are_read_or_left_out() -> None:
    odd = {"achievements": "wood", "milestone_events": [1, None, {"a": 1}, "door"], "nan": math.nan}
    worse = {"achievements": {"big": 10**400, "nan": math.nan, "text": "x"}, "unique_achievements": 7}
    assert list(event_rates.event_rates([episode(details=odd), episode(details=worse)])) == ["door"]


def test_keys_are_bounded_in_number_and_the_rest_are_other() -> None:
    rare = tuple((f"rare {n:03}", 1.0) for n in range(80))
    both = [episode(events=(*rare, ("common", 1.0))), episode(events=(("common", 1.0), ("other", 2.0)))]
    rates = event_rates.event_rates(both)
    assert len(rates) == MAX_KEYS + 1
    assert rates["common"] == EventRate(1.0, 1.0)
    assert "rare_048" in rates
    assert "rare_049" not in rates
    assert rates["other"] == EventRate(1.0, (31 * 1.0 + 2.0) / 2), (
        "31 rare keys in one, the app's own in the other"
    )


@pytest.mark.parametrize(
    "key",
    ["<script>alert(1)</script>", "a\nb\r\n", "../../etc", "x" * 100_000, "\ud800\u202e", "", "a.b.mean"],
)
def test_a_key_of_any_text_becomes_a_short_plain_name(key: str) -> None:
    safe = event_rates.safe_key(key)
    assert 0 < len(safe) <= event_rates.MAX_KEY_LENGTH
    assert all(c.isalnum() or c in "-_" for c in safe)


def test_keys_that_become_one_name_are_counted_as_one() -> None:
    rates = event_rates.event_rates([episode(events=(("get wood", 1.0), ("get/wood", 1.0))), episode()])
    assert rates == {"get_wood": EventRate(0.5, 1.0)}


def test_prompt_tokens_are_whole_prompts_and_failed_calls_are_none() -> None:
    first = make_call(0, [1, 2, 3], [4, 5], finish_reason="tool_calls", latency_s=1.0)
    second = make_call(1, [6], [7], parent=0, finish_reason="length", latency_s=3.0)
    broken = make_call(
        2, [1] * 50, [],
        error=CallError(status=503, code="unavailable", message="down", is_policy_fault=False), latency_s=60.0,
    )  # fmt: skip
    other = make_call(0, [1, 2], [3, 4, 5], finish_reason="content_filter", latency_s=2.0)
    found = episode_measures([episode(first, second, broken), episode(other)])
    assert {
        name: found[name] for name in found if name.startswith(("tokens.", "stops.", "latency.", "turns."))
    } == {
        "tokens.prompt": 3 + (3 + 2 + 1) + 2,
        "tokens.prompt_per_episode": 5.5,
        "tokens.sampled": 6,
        "tokens.sampled_per_episode": 3.0,
        "tokens.sampled_max": 3,
        "stops.stop_share": 0.0,
        "stops.length_share": pytest.approx(1 / 3),
        "stops.tool_calls_share": pytest.approx(1 / 3),
        "stops.other_share": pytest.approx(1 / 3),
        "latency.agent_s": 2.0,
        "latency.agent_p95_s": 3.0,
        "turns.mean": 1.5,
    }


def test_what_no_app_reports_is_absent_and_never_zero() -> None:
    found = episode_measures([episode(ops=(Op(index=0),))])
    assert found.keys() == {
        "turns.mean", "rollouts.truncated_share", "tokens.prompt", "tokens.prompt_per_episode", "tokens.sampled",
        "tokens.sampled_per_episode", "tokens.sampled_max",
    }  # fmt: skip


def test_invalid_actions_are_a_share_of_the_actions_that_the_app_judged() -> None:
    ops = tuple(Op(index=n, is_invalid_action=flag) for n, flag in enumerate([True, False, None, False]))
    found = episode_measures([episode(ops=ops, is_truncated=True), episode(ops=(Op(index=0),))])
    assert found["health.invalid_action_rate"] == pytest.approx(1 / 3)
    assert found["rollouts.truncated_share"] == 0.5


def test_latencies_of_the_environment_leave_out_what_no_clock_shows() -> None:
    ops = tuple(Op(index=n, latency_s=s) for n, s in enumerate([0.5, -4.0, math.inf, None, 1.5]))
    found = episode_measures([episode(ops=ops)])
    assert (found["latency.env_s"], found["latency.env_p95_s"]) == (1.0, 1.5)
    assert "latency.agent_s" not in found


def test_the_95th_percentile_is_the_nearest_rank() -> None:
    assert percentile_95([float(n) for n in range(20, 0, -1)]) == 19.0
    assert percentile_95([1.0, 2.0]) == 2.0


def test_huge_values_leave_their_mean_out_instead_of_breaking_the_job() -> None:
    huge = episode(events=(("boom", 1.7e308), ("boom", 1.7e308)))
    found = episode_measures([huge])
    assert "events.boom.mean" not in found
    assert found["events.boom.frequency"] == 1.0
    assert reward_measures([1.7e308, 1.7e308], [1.0, 1.0])["reward.mean"] == pytest.approx(1.7e308)


def test_a_report_has_the_measures_under_headings() -> None:
    tree = nested({"health.invalid_action_rate": 0.1, "events.a.mean": 1.0, "events.a.frequency": 0.5})
    assert tree == {"health": {"invalid_action_rate": 0.1}, "events": {"a": {"mean": 1.0, "frequency": 0.5}}}
