"""Gymnasium's FrozenLake on random maps, played turn by turn: an environment that nobody wrote for this."""
