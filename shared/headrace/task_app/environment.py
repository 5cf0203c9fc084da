"""What an author writes: an environment with `reset` and `step`. Knows no HTTP and no policy."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ToolCall:
    """One tool call of a reply."""

    id: str
    name: str
    arguments: dict[str, Any]
    """Parsed arguments; empty when `raw` is not a JSON object."""
    raw: str = "{}"
    """The arguments as the policy wrote them."""

    @property
    def is_valid(self) -> bool:
        """Whether the arguments are a JSON object."""
        return bool(self.arguments) or self.raw.strip() in ("", "{}")


class Action(str):
    """The policy's reply: its text (this is a `str`), and the tool calls that it held.

    >>> Action(" up ").strip()
    'up'
    """

    __slots__ = ("is_cut", "tool_calls")
    tool_calls: tuple[ToolCall, ...]
    is_cut: bool

    def __new__(cls, text: str = "", tool_calls: Sequence[ToolCall] = (), is_cut: bool = False) -> Action:
        """`is_cut`: the reply was ended by its limit of tokens."""
        action = super().__new__(cls, text)
        action.tool_calls = tuple(tool_calls)
        action.is_cut = is_cut
        return action


@dataclass(frozen=True)
class Event:
    """A reward during the episode: it is recorded, and trained on where `[training] credit` says so."""

    key: str
    value: float
    type: str = "sparse"
    """`sparse`, `shaped`, `achievement` or `penalty`."""


@dataclass(frozen=True)
class StepResult:
    """What the environment makes of one action."""

    observation: Any = None
    """What the policy sees next: text, or anything that `Environment.render` turns into text."""
    reward: float = 0.0
    """Added to the episode's outcome, unless the environment has an `outcome` of its own."""
    done: bool = False
    truncated: bool = False
    """Ended by a limit of the environment rather than by the task; the episode keeps its reward."""
    events: Sequence[Event] | Mapping[str, float] = ()
    """Rewards beside the outcome: `Event`s, or `{key: value}`. They do not count in the outcome."""
    invalid: bool = False
    """The action was not one; shown as policy health."""
    info: dict[str, Any] = field(default_factory=dict)
    """JSON that goes into the trace."""

    @property
    def event_list(self) -> list[Event]:
        if isinstance(self.events, Mapping):
            return [Event(key, value) for key, value in self.events.items()]
        return list(self.events)


class Environment:
    """One episode. A fresh object is made for each, so attributes are never shared.

    `reset` and `step` (and `outcome`, `close`) may be `async def` or `def`. A plain `def` runs in a
    thread of the app's pool, so that it may block; an environment of microseconds sets
    `inline = True` and is called on the event loop itself.

        class Guess(Environment):
            system = "Guess a number from 0 to 9. Answer with the digit only."

            def reset(self, seed: int) -> str:
                self.number = seed % 10
                return "Your guess?"

            def step(self, action: Action) -> StepResult:
                is_right = action.strip() == str(self.number)
                return StepResult("Wrong, again.", reward=float(is_right), done=is_right)
    """

    system: str | None = None
    """System prompt; read after `reset`, which may set it."""
    tools: list[dict[str, Any]] | None = None
    """Tools in OpenAI's form; `Action.tool_calls` holds the policy's calls of them."""
    inline: bool = False
    """Call plain `def` methods on the event loop: only where they never block."""

    def reset(self, seed: int) -> Any:
        """Start the task that `seed` names; returns the first observation."""
        raise NotImplementedError(f"{type(self).__name__} needs reset(self, seed)")

    def step(self, action: Action) -> StepResult | Awaitable[StepResult]:
        """Apply one reply of the policy."""
        raise NotImplementedError(f"{type(self).__name__} needs step(self, action)")

    def outcome(self) -> float | Awaitable[float | None] | None:
        """The episode's reward, asked for once at its end; None takes the sum of the steps' rewards."""
        return None

    def close(self) -> Awaitable[None] | None:
        """Called once when the episode is over, however it ended."""

    def render(self, observation: Any) -> str:
        """An observation as the text of a message: text as it is, anything else as JSON."""
        if isinstance(observation, str):
            return observation
        return json.dumps(observation, ensure_ascii=False)

    def opening(self, observation: Any) -> list[dict[str, Any]]:
        """The conversation before the first reply: the system prompt and the first observation."""
        messages = [{"role": "system", "content": self.system}] if self.system is not None else []
        return [*messages, {"role": "user", "content": self.render(observation)}]
