"""The walk, in two turns: read what is left, answer with moves, read what is left then, answer again."""

from __future__ import annotations

from examples.walk.goals import HELD_OUT, describe, goal_of, is_held_out_seed
from examples.walk.moves import MAX_TURNS, is_answer, walk
from headrace.task_app import Action, Environment, StepResult


class Walk(Environment):
    """Reward 1 at the goal after either turn, else 0. An answer that is no moves leaves the walker there.

    The policy is told nothing but what is left, such as `x+3 y-2`. In training a square from which
    what is left reads like a held-out goal ends the episode, so that no such text is ever shown.
    """

    inline = True

    def reset(self, seed: int) -> str:
        self.left = goal_of(seed)
        self.turn = 0
        self.is_training = not is_held_out_seed(seed)
        return describe(self.left)

    def step(self, action: Action) -> StepResult:
        self.turn += 1
        moved = is_answer(action)
        if moved:
            self.left = walk(self.left, action)
        is_there = self.left == (0, 0)
        off_limits = self.is_training and self.left in HELD_OUT
        return StepResult(
            describe(self.left),
            reward=float(is_there),
            done=is_there or off_limits or self.turn == MAX_TURNS,
            invalid=not moved,
            info={"left": list(self.left)},
        )
