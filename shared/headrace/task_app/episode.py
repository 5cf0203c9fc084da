"""The agent loop: the policy's replies in, the environment's steps out, until the end or a limit."""

from __future__ import annotations

import asyncio
import inspect
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from headrace.errors import HeadraceError
from headrace.task_app.environment import Environment, StepResult
from headrace.task_app.policy_client import ContextExceeded, PolicyClient, Reply
from headrace.task_app.wire import RolloutRequest


class EnvironmentFailed(HeadraceError):
    """The author's code raised, hung or gave a value that is none; never a reward."""

    status = 500
    code = "environment_error"


@dataclass
class Turn:
    """One reply and what the environment made of it."""

    observation: Any
    """What the policy saw before it replied."""
    reply: Reply | None
    """None when the policy could not reply any more; `error` says why."""
    result: StepResult
    latency_s: float = 0.0
    error: str | None = None


@dataclass
class Episode:
    turns: list[Turn] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)
    observation: Any = None
    """The last one that the environment gave."""
    outcome: float = 0.0
    is_done: bool = False
    is_truncated: bool = False
    n_ops: int = 0
    n_calls: int = 0


class Director:
    """Plays one episode of one environment."""

    def __init__(
        self, env: Environment, policy: PolicyClient, executor: Executor, step_timeout_s: float
    ) -> None:
        self._env, self._policy, self._executor = env, policy, executor
        self._step_timeout_s = step_timeout_s

    async def play(self, request: RolloutRequest, seed: int, max_turns: int | None) -> Episode:
        """Raises InferenceFailed or EnvironmentFailed; limits end the episode as truncated."""
        deadline = time.monotonic() + request.safety.max_time_s
        episode = Episode(observation=await self._call(self._env.reset, seed))
        with attributed("opening"):
            episode.messages = self._env.opening(episode.observation)
        max_calls = _call_limit(request, max_turns)
        pending: Reply | None = None
        for op in request.ops[: request.safety.max_ops]:
            if time.monotonic() >= deadline or (op == "agent" and episode.n_calls >= max_calls):
                break
            episode.n_ops += 1
            if op == "agent":
                pending = await self._ask(episode, deadline)
                if pending is None:
                    break
            elif pending is not None:
                await self._step(episode, pending)
                pending = None
                if episode.is_done:
                    break
        episode.is_truncated = episode.is_truncated or not episode.is_done
        episode.outcome = await self._outcome(episode)
        return episode

    async def close(self) -> None:
        await self._call(self._env.close)

    async def _ask(self, episode: Episode, deadline: float) -> Reply | None:
        try:
            reply = await self._policy.complete(
                episode.messages, self._env.tools, max(0.1, deadline - time.monotonic())
            )
        except ContextExceeded as error:
            stopped = StepResult(observation=episode.observation, truncated=True)
            episode.turns.append(
                Turn(episode.observation, None, stopped, error=f"context_length_exceeded: {error}")
            )
            return None
        episode.n_calls += 1
        episode.messages.append(reply.message)
        return reply

    async def _step(self, episode: Episode, reply: Reply) -> None:
        started = time.monotonic()
        result = await self._call(self._env.step, reply.action)
        if not isinstance(result, StepResult):
            raise EnvironmentFailed(f"step returned {type(result).__name__}; it must return a StepResult")
        number_or_fail("step reward", result.reward)
        for event in result.event_list:
            number_or_fail(f"event {event.key!r}", event.value)
        episode.turns.append(Turn(episode.observation, reply, result, time.monotonic() - started))
        episode.observation = result.observation
        episode.is_done = result.done or result.truncated
        episode.is_truncated = result.truncated
        if not episode.is_done:
            with attributed("render"):
                episode.messages += self._answers(reply, result.observation)

    def _answers(self, reply: Reply, observation: Any) -> list[dict[str, Any]]:
        """The observation as a user message, or as results of the reply's tool calls.

        Of several calls the last gets the observation and the earlier ones an empty result, unless the
        observation is a list with one entry per call.
        """
        calls = reply.action.tool_calls
        if not calls:
            return [{"role": "user", "content": self._env.render(observation)}]
        if isinstance(observation, list) and len(observation) == len(calls):
            texts = [self._env.render(part) for part in observation]
        else:
            texts = [""] * (len(calls) - 1) + [self._env.render(observation)]
        return [
            {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": text}
            for call, text in zip(calls, texts, strict=True)
        ]

    async def _outcome(self, episode: Episode) -> float:
        own = await self._call(self._env.outcome)
        if own is not None:
            return number_or_fail("outcome", own)
        return float(sum(turn.result.reward for turn in episode.turns))

    async def _call(self, method: Callable[..., Any], *args: Any) -> Any:
        """Call the author's method, `async def` or `def`, and name it in what it raises."""
        with attributed(getattr(method, "__name__", "method")):
            if inspect.iscoroutinefunction(method):
                return await asyncio.wait_for(method(*args), self._step_timeout_s)
            if self._env.inline:
                return method(*args)
            running = asyncio.get_running_loop().run_in_executor(self._executor, method, *args)
            return await asyncio.wait_for(running, self._step_timeout_s)


@contextmanager
def attributed(name: str) -> Iterator[None]:
    """Name the author's method in whatever it raises."""
    try:
        yield
    except HeadraceError:
        raise
    except TimeoutError as error:
        raise EnvironmentFailed(f"{name} took too long: {error or 'step_timeout_s is over'}") from error
    except Exception as error:
        raise EnvironmentFailed(f"{name} raised {type(error).__name__}: {error}") from error


def number_or_fail(what: str, value: Any) -> float:
    """`value` as a float when it is a finite number; raises EnvironmentFailed otherwise."""
    if not hasattr(value, "__float__") or isinstance(value, str) or not math.isfinite(float(value)):
        raise EnvironmentFailed(f"{what} = {value!r} is no finite number")
    return float(value)


def _call_limit(request: RolloutRequest, max_turns: int | None) -> float:
    asked = request.policy.config.get("max_llm_calls")
    limits = [limit for limit in (max_turns, asked) if isinstance(limit, int) and limit > 0]
    return min(limits, default=math.inf)
