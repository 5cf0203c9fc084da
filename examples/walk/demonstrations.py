"""Write the noisy demonstrations of the walk as chat JSONL.

The demonstrator walks along x and mostly forgets y: in each turn it drops the y part with
probability 0.85, and each of its moves is a random one with probability 0.1. A model that imitates
it knows the language of moves and reaches the goal in about a third of the episodes.

    python -m examples.walk.demonstrations FILE
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

from examples.walk.goals import HELD_OUT, TRAINING, Goal, describe
from examples.walk.moves import MAX_MOVES, MAX_TURNS, STEPS, along_x, along_y, walk

DROP_Y = 0.85
RANDOM_MOVE = 0.1
N_CONVERSATIONS = 16_000

Message = dict[str, str]


def answer(left: Goal, rng: random.Random) -> str:
    """The demonstrator's answer: never empty, at most 8 moves."""
    plan = along_x(left[0]) + ("" if rng.random() < DROP_Y else along_y(left[1]))
    noisy = [rng.choice("RLUD") if rng.random() < RANDOM_MOVE else move for move in plan]
    return "".join(noisy)[:MAX_MOVES] or rng.choice(tuple(STEPS))


def conversation(goal: Goal, rng: random.Random) -> list[Message] | None:
    """One episode from `goal`; None when it would show a held-out goal on the way."""
    messages: list[Message] = []
    left = goal
    for _ in range(MAX_TURNS):
        if left in HELD_OUT:
            return None
        text = answer(left, rng)
        messages += [{"role": "user", "content": describe(left)}, {"role": "assistant", "content": text}]
        left = walk(left, text)
        if left == (0, 0):
            break
    return messages


def conversations(n: int = N_CONVERSATIONS, seed: int = 0) -> list[list[Message]]:
    """`n` episodes over the training goals, the same for the same seed."""
    rng = random.Random(seed)
    kept: list[list[Message]] = []
    while len(kept) < n:
        messages = conversation(rng.choice(TRAINING), rng)
        if messages is not None:
            kept.append(messages)
    return kept


def write(path: Path, n: int = N_CONVERSATIONS, seed: int = 0) -> None:
    """One conversation a line: `{"messages": [...]}`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        for messages in conversations(n, seed):
            file.write(json.dumps({"messages": messages}) + "\n")


if __name__ == "__main__":
    write(Path(sys.argv[1]), seed=int(sys.argv[2]) if len(sys.argv) > 2 else 0)
