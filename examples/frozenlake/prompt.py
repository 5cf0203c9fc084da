"""What the policy is told in FrozenLake, shared by the environment, the demonstrations and the tokenizer."""

from __future__ import annotations

SYSTEM = "Reach G. Avoid H. Reply L, D, R or U."
MAX_TURNS = 10
