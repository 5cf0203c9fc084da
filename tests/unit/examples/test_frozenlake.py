"""FrozenLake: the lake is Gymnasium's, the held-out maps are new, the controls are what they say."""

from __future__ import annotations

import pytest

from examples.frozenlake import app as lake_app
from examples.frozenlake import blind, maps
from examples.frozenlake.environment import FELL, NEW_TILE, FrozenLake
from examples.frozenlake.held_out import HELD_OUT_SEEDS
from headrace.task_app import Action, StepResult

HOLE_BELOW = next(seed for seed in maps.TRAINING_SEEDS if maps.map_of(seed)[1][0] == "H")


def play_best(env: FrozenLake, seed: int) -> tuple[float, list[str], StepResult]:
    """Follow a shortest way: rewards in sum, the texts read, the last result."""
    shown = [env.render(env.reset(seed))]
    best = maps.shortest_moves(maps.map_of(seed))
    total = 0.0
    while True:
        result = env.step(Action(best[env.player]))
        total += result.reward
        if result.done or result.truncated:
            env.close()
            return total, shown, result
        shown.append(env.render(result.observation))


def test_a_shortest_way_reaches_the_goal_on_every_held_out_map():
    for seed in HELD_OUT_SEEDS:
        assert play_best(FrozenLake(), seed)[0] == 1.0


def test_our_drawing_and_moves_agree_with_gymnasium():
    for seed in range(40):
        _, shown, _ = play_best(FrozenLake(), seed)
        rows, best, player = maps.map_of(seed), maps.shortest_moves(maps.map_of(seed)), (0, 0)
        for text in shown:
            assert text == maps.draw(rows, player)
            player = maps.move(player, best[player])


def test_a_hole_ends_the_episode_with_an_event_and_no_reward():
    env = FrozenLake()
    env.reset(HOLE_BELOW)
    result = env.step(Action("D"))
    assert (result.reward, result.done, result.events) == (0.0, True, {"fell": FELL})


def test_each_tile_is_an_event_the_first_time_only():
    seed = next(s for s in maps.TRAINING_SEEDS if maps.map_of(s)[0].startswith("SFF"))
    env = FrozenLake()
    env.reset(seed)
    events = [env.step(Action(action)).events for action in "RLRR"]
    assert events == [{"new_tile": NEW_TILE}, {}, {}, {"new_tile": NEW_TILE}]


def test_the_tenth_turn_truncates_and_a_reply_that_is_no_action_costs_a_turn():
    env = FrozenLake()
    first = env.reset(0)
    results = [env.step(Action("north")) for _ in range(10)]
    assert all(result.invalid and result.observation == first for result in results)
    assert [result.truncated for result in results] == [False] * 9 + [True]


def test_no_held_out_map_is_a_training_map_and_all_differ():
    training = {maps.map_of(seed) for seed in maps.TRAINING_SEEDS}
    held_out = [maps.map_of(seed) for seed in HELD_OUT_SEEDS]
    assert len(set(held_out)) == len(held_out) == 400
    assert not training & set(held_out)


def test_the_fixed_list_is_what_the_filter_gives():
    assert maps.held_out_seeds(400) == HELD_OUT_SEEDS


def test_the_blind_walks_are_the_twenty_shortest_ways():
    assert len(blind.walks()) == 20
    assert {(way.count("R"), way.count("D")) for way in blind.walks()} == {(3, 3)}


def test_blind_success_is_exact_on_known_maps():
    open_lake = ("SFFF", "FFFF", "FFFF", "FFFG")
    one_way = ("SFFF", "HHHF", "HHHF", "HHHG")
    assert blind.best_blind_walk([open_lake, one_way]) == ("RRRDDD", 1.0)
    assert blind.random_blind_walk([one_way]) == pytest.approx(_one_way_by_coin())


def _one_way_by_coin() -> float:
    """Three rights (a down is death), then three downs among at most seven more throws."""
    downs_in_time = sum(1 for throws in range(2**7) if bin(throws).count("1") >= 3) / 2**7
    return 0.5**3 * downs_in_time


def test_the_control_reads_the_same_whatever_happens():
    env = lake_app.environment({"blind": True})
    assert env.render(env.reset(HELD_OUT_SEEDS[0])) == blind.CONSTANT
    assert env.render(env.step(Action("L")).observation) == blind.CONSTANT
