"""Write the noisy demonstrations of FrozenLake as chat JSONL.

The demonstrator knows a shortest way that avoids the holes, and each of its moves is a random one
with probability 0.4: it reaches the goal in about half of its episodes. A demonstrator that
ignored the holes would leave a model from which RL does not climb.

    python -m examples.frozenlake.demonstrations FILE
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

from examples.frozenlake.maps import ACTIONS, SIZE, TRAINING_SEEDS, Map, draw, map_of, move, shortest_moves
from examples.frozenlake.prompt import MAX_TURNS, SYSTEM

RANDOM_MOVE = 0.4
N_CONVERSATIONS = 4_800

Message = dict[str, str]


def conversation(rows: Map, rng: random.Random) -> list[Message]:
    """One episode on a map, to the goal, into a hole or to the last turn."""
    best = shortest_moves(rows)
    player = (0, 0)
    messages: list[Message] = [{"role": "system", "content": SYSTEM}]
    for _ in range(MAX_TURNS):
        action = rng.choice(ACTIONS) if rng.random() < RANDOM_MOVE else best[player]
        messages += [
            {"role": "user", "content": draw(rows, player)},
            {"role": "assistant", "content": action},
        ]
        player = move(player, action)
        if player == (SIZE - 1, SIZE - 1) or rows[player[0]][player[1]] == "H":
            break
    return messages


def conversations(n: int = N_CONVERSATIONS, seed: int = 0) -> list[list[Message]]:
    """`n` episodes, going round the training maps, the same for the same seed."""
    rng = random.Random(seed)
    return [conversation(map_of(TRAINING_SEEDS[index % len(TRAINING_SEEDS)]), rng) for index in range(n)]


def write(path: Path, n: int = N_CONVERSATIONS, seed: int = 0) -> None:
    """One conversation a line: `{"messages": [...]}`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        for messages in conversations(n, seed):
            file.write(json.dumps({"messages": messages}) + "\n")


if __name__ == "__main__":
    write(Path(sys.argv[1]), seed=int(sys.argv[2]) if len(sys.argv) > 2 else 0)
