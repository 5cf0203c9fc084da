"""The walk: its rules, what is held out, its control."""

from __future__ import annotations

import random

from examples.walk import app as walk_app
from examples.walk import goals, moves
from examples.walk.blind import CONSTANT, BlindWalk
from examples.walk.environment import Walk
from headrace.task_app import Action


def play(env: Walk, seed: int, *answers: str) -> tuple[float, list[str], bool]:
    """Rewards in sum, the texts that the policy would read, and whether the episode is over."""
    shown = [env.render(env.reset(seed))]
    total, done = 0.0, False
    for answer in answers:
        result = env.step(Action(answer))
        total, done = total + result.reward, result.done
        if done:
            break
        shown.append(env.render(result.observation))
    return total, shown, done


def test_the_shortest_answer_reaches_every_goal_in_one_turn():
    for seed in (*goals.TRAINING_SEEDS, *goals.HELD_OUT_SEEDS):
        reward, shown, done = play(Walk(), seed, moves.straight(goals.goal_of(seed)))
        assert (reward, len(shown), done) == (1.0, 1, True)


def test_a_goal_missed_by_the_first_answer_can_be_reached_by_the_second():
    seed = goals.HELD_OUT_SEEDS[goals.HELD_OUT.index((3, -3))]
    assert play(Walk(), seed, "RRR", "DDD") == (1.0, ["x+3 y-3", "x+0 y-3"], True)


def test_the_episode_ends_without_reward_after_the_second_answer():
    seed = goals.HELD_OUT_SEEDS[goals.HELD_OUT.index((3, -3))]
    reward, _, done = play(Walk(), seed, "RRR", "U")
    assert (reward, done) == (0.0, True)


def test_an_answer_that_is_no_moves_leaves_the_walker_and_is_reported():
    for answer in ("", "north", "R R", "r", "RRRRRRRRR"):
        env = Walk()
        first = env.reset(0)
        result = env.step(Action(answer))
        assert result.invalid, answer
        assert result.observation == first
        assert result.reward == 0


def test_eighty_goals_fall_into_sixty_and_twenty():
    assert len(goals.ALL) == 80
    assert len(goals.HELD_OUT) == len(set(goals.HELD_OUT)) == 20
    assert set(goals.TRAINING) | set(goals.HELD_OUT) == set(goals.ALL)
    assert not set(goals.TRAINING) & set(goals.HELD_OUT)


def test_training_seeds_name_training_goals_and_evaluation_seeds_held_out_ones():
    assert {goals.goal_of(seed) for seed in range(60)} == set(goals.TRAINING)
    assert [goals.goal_of(seed) for seed in range(1000, 1020)] == list(goals.HELD_OUT)


def test_no_training_episode_shows_a_held_out_goal_whatever_is_answered():
    held_out = {goals.describe(goal) for goal in goals.HELD_OUT}
    rng = random.Random(0)
    for _ in range(4000):
        answers = ["".join(rng.choices("RLUD", k=rng.randint(1, 8))) for _ in range(2)]
        _, shown, _ = play(Walk(), rng.choice(goals.TRAINING_SEEDS), *answers)
        assert not held_out & set(shown)


def test_the_control_reads_the_same_whatever_is_left():
    _, shown, _ = play(BlindWalk(), 1003, "R")
    assert shown == [CONSTANT, CONSTANT]


def test_no_fixed_answers_reach_more_than_a_few_held_out_goals():
    best = max(
        sum(play(BlindWalk(), seed, *answers)[0] for seed in goals.HELD_OUT_SEEDS)
        for answers in ((moves.straight(a), moves.straight(b)) for a in goals.ALL for b in goals.ALL)
    )
    assert best / len(goals.HELD_OUT) <= 0.1


def test_the_config_of_a_rollout_chooses_the_control():
    assert type(walk_app.environment({})) is Walk
    assert type(walk_app.environment({"blind": True})) is BlindWalk
    assert walk_app.app.taskset()["reward_range"] == (0.0, 1.0)
