"""The control: the same walk, but whatever is left, the policy reads the same constant.

A policy that succeeds here would not need its observation, and the task would prove nothing.
"""

from __future__ import annotations

from typing import Any

from examples.walk.environment import Walk
from examples.walk.goals import describe

CONSTANT = describe((2, 1))
"""A training goal, so that the policy knows what it reads and answers with moves."""


class BlindWalk(Walk):
    def render(self, observation: Any) -> str:
        return CONSTANT
