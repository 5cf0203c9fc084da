"""An episode's plan: ops that ask the policy (`agent`) and ops that let the environment act (`env`)."""

from __future__ import annotations

from collections.abc import Sequence

AGENT_OPS = ("agent", "policy", "model")
"""Names under which an op asks the policy."""
ENV_OPS = ("env", "environment", "step")
"""Names under which task apps let the environment act."""


def n_agent_ops(plan: Sequence[str]) -> int:
    return sum(op in AGENT_OPS for op in plan)


def cycled_ops(plan: tuple[str, ...], max_turns: int) -> tuple[str, ...]:
    """The plan (`agent`, `env` when empty), repeated until it asks the policy `max_turns` times.

    >>> cycled_ops(("agent", "env"), 2)
    ('agent', 'env', 'agent', 'env')
    """
    plan = plan or ("agent", "env")
    n_agent = n_agent_ops(plan)
    if not 0 < n_agent < max_turns:
        return plan
    return first_turns(plan * -(-max_turns // n_agent), max_turns)


def first_turns(plan: Sequence[str], max_turns: int) -> tuple[str, ...]:
    """The plan up to its `max_turns`-th turn, the environment's part of that included.

    >>> first_turns(("agent", "env", "agent", "env"), 1)
    ('agent', 'env')
    """
    n = 0
    for index, op in enumerate(plan):
        n += op in AGENT_OPS
        if n > max_turns:
            return tuple(plan[:index])
    return tuple(plan)
