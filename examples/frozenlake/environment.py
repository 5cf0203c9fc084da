"""Gymnasium's FrozenLake, one letter per turn, on the map that the seed names."""

from __future__ import annotations

import gymnasium

from examples.frozenlake.maps import ACTIONS, SIZE, Tile, draw, map_of
from examples.frozenlake.prompt import MAX_TURNS, SYSTEM
from headrace.task_app import Action, Environment, StepResult

NEW_TILE = 0.1
FELL = -1.0


class FrozenLake(Environment):
    """Reward 1 on the goal, 0 otherwise; not slippery. A reply that is no action costs the turn.

    Events beside the outcome: `new_tile` for each tile reached for the first time, `fell` for a hole.
    """

    system = SYSTEM
    inline = True

    def reset(self, seed: int) -> str:
        self.rows = map_of(seed)
        self.lake = gymnasium.make(
            "FrozenLake-v1", desc=list(self.rows), is_slippery=False, max_episode_steps=MAX_TURNS
        )
        state, _ = self.lake.reset(seed=seed)
        self.player = _tile(state)
        self.visited = {self.player}
        self.turn = 0
        return draw(self.rows, self.player)

    def step(self, action: Action) -> StepResult:
        self.turn += 1
        is_action = len(action) == 1 and action in ACTIONS
        reward, is_over = 0.0, False
        if is_action:
            state, gained, is_over, _, _ = self.lake.step(ACTIONS.index(action))
            self.player, reward = _tile(state), float(gained)
        fell = self.rows[self.player[0]][self.player[1]] == "H"
        return StepResult(
            draw(self.rows, self.player),
            reward=reward,
            done=is_over,
            truncated=not is_over and self.turn == MAX_TURNS,
            events=self._events(fell),
            invalid=not is_action,
            info={"player": list(self.player)},
        )

    def close(self) -> None:
        self.lake.close()

    def _events(self, fell: bool) -> dict[str, float]:
        events = {"fell": FELL} if fell else {}
        if self.player not in self.visited:
            self.visited.add(self.player)
            events |= {} if fell else {"new_tile": NEW_TILE}
        return events


def _tile(state: int) -> Tile:
    return divmod(int(state), SIZE)
