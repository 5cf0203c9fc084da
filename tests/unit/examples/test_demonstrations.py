"""Demonstrations: what the environment itself would show, and nothing held out."""

from __future__ import annotations

import json
from pathlib import Path

from examples.frozenlake import demonstrations as lake
from examples.frozenlake import maps
from examples.frozenlake.environment import FrozenLake
from examples.walk import demonstrations as walk
from examples.walk import goals
from examples.walk.environment import Walk
from headrace.task_app import Action


def prompts_of(env: Walk | FrozenLake, seed: int, messages: list[dict[str, str]]) -> list[dict[str, str]]:
    """The conversation as the environment tells it when it gets the replies of `messages`."""
    told = env.opening(env.reset(seed))
    replies = [message["content"] for message in messages if message["role"] == "assistant"]
    for turn, reply in enumerate(replies):
        result = env.step(Action(reply))
        assert (result.done or result.truncated) == (turn == len(replies) - 1)
        told.append({"role": "assistant", "content": reply})
        if turn < len(replies) - 1:
            told.append({"role": "user", "content": env.render(result.observation)})
    env.close()
    return told


def test_a_walk_demonstration_is_what_the_environment_would_have_shown():
    seed_of = {goals.describe(goals.goal_of(seed)): seed for seed in goals.TRAINING_SEEDS}
    for messages in walk.conversations(500):
        assert prompts_of(Walk(), seed_of[messages[0]["content"]], messages) == messages


def test_a_frozenlake_demonstration_is_what_the_environment_would_have_shown():
    for index, messages in enumerate(lake.conversations(300)):
        seed = maps.TRAINING_SEEDS[index]
        assert prompts_of(FrozenLake(), seed, messages) == messages


def test_no_walk_demonstration_contains_a_held_out_goal(tmp_path: Path):
    walk.write(tmp_path / "walk.jsonl")
    text = (tmp_path / "walk.jsonl").read_text()
    assert len(text.splitlines()) == walk.N_CONVERSATIONS
    for goal in goals.HELD_OUT:
        assert goals.describe(goal) not in text


def test_every_line_is_a_chat_that_ends_with_the_assistant(tmp_path: Path):
    for module in (walk, lake):
        path = tmp_path / f"{module.__name__}.jsonl"
        module.write(path, n=300)
        for line in path.read_text().splitlines():
            chat = json.loads(line)
            assert list(chat) == ["messages"]
            roles = [message["role"] for message in chat["messages"] if message["role"] != "system"]
            assert roles == ["user", "assistant"] * (len(roles) // 2)
            assert all(message["content"] for message in chat["messages"])


def test_the_same_seed_gives_the_same_demonstrations():
    assert walk.conversations(20, seed=3) == walk.conversations(20, seed=3)
    assert walk.conversations(20, seed=3) != walk.conversations(20, seed=4)


def test_the_frozenlake_demonstrator_reaches_the_goal_in_about_half_of_its_episodes():
    reached = sum(_ends_on_goal(messages) for messages in lake.conversations(2000)) / 2000
    assert 0.45 < reached < 0.6


def _ends_on_goal(messages: list[dict[str, str]]) -> bool:
    rows = messages[-2]["content"].split("\n")
    row = next(index for index, text in enumerate(rows) if "P" in text)
    after = maps.move((row, rows[row].index("P")), messages[-1]["content"])
    return after == (maps.SIZE - 1, maps.SIZE - 1)
