"""The maths of RL without torch and without IO: rows, returns, advantages, seeds, staleness, statistics."""
