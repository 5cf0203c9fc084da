"""A task app: environments, seeds and rewards behind the contract's HTTP routes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from headrace.errors import BadRequest, ConfigError
from headrace.task_app.environment import Environment
from headrace.task_app.episode import Director, Episode, attributed
from headrace.task_app.policy_client import PolicyClient
from headrace.task_app.response import rollout_response
from headrace.task_app.wire import RolloutRequest

if TYPE_CHECKING:
    from fastapi import FastAPI


class TaskApp:
    """Serves an environment; an ASGI application itself (`uvicorn module:app`), or run by `serve`.

    `env_factory`: an `Environment` class, or any callable that makes a fresh one per episode; if it
    has a parameter `config` it gets `env.config` of the request (the job's `[rollout] env_config`
    and the split). `splits` names the seeds of each split; the first is the default. `reward_range`
    is what the outcome can be: its minimum is what a job gives an episode that the policy broke.
    `auth = "none"` opens the app to this machine, and to no other.
    """

    def __init__(
        self,
        env_factory: Callable[..., Environment],
        *,
        task_id: str,
        version: str = "0.1.0",
        description: str = "",
        name: str | None = None,
        splits: Mapping[str, Iterable[int]] | None = None,
        reward_range: tuple[float, float] | None = None,
        max_turns: int | None = None,
        auth: Literal["keys", "none"] = "keys",
        step_timeout_s: float = 60.0,
        max_threads: int = 64,
    ) -> None:
        if auth not in ("keys", "none"):
            raise ConfigError(f'auth = {auth!r} is neither "keys" nor "none"')
        if reward_range is not None and not reward_range[0] <= reward_range[1]:
            raise ConfigError(f"reward_range = {reward_range}: the minimum comes first")
        self.task_id, self.version, self.description = task_id, version, description
        self.name = name or task_id
        self.splits = _splits(splits if splits is not None else getattr(env_factory, "splits", None))
        self.reward_range = reward_range
        self.max_turns = max_turns if max_turns is not None else getattr(env_factory, "max_turns", None)
        self.auth = auth
        self.step_timeout_s = step_timeout_s
        self._factory = env_factory
        self._takes_config = "config" in inspect.signature(env_factory).parameters
        self._executor = ThreadPoolExecutor(max_threads, thread_name_prefix="environment")

    @cached_property
    def asgi(self) -> FastAPI:
        """The FastAPI application; routes of your own may be added to it."""
        from headrace.task_app.routes import build

        return build(self)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.asgi(scope, receive, send)

    async def rollout(self, request: RolloutRequest) -> dict[str, Any]:
        """Play one episode; nothing is shared with the others that run at the same time."""
        policy = PolicyClient(request.policy.config)
        try:
            episode = await self._play(request, policy)
        finally:
            await policy.close()
        return rollout_response(request, episode, self.name)

    async def _play(self, request: RolloutRequest, policy: PolicyClient) -> Episode:
        with attributed("env_factory"):
            env = self._factory(config=request.env.config) if self._takes_config else self._factory()
        director = Director(env, policy, self._executor, self.step_timeout_s)
        try:
            return await director.play(request, self._seed(request), self.max_turns)
        finally:
            await director.close()

    def _seed(self, request: RolloutRequest) -> int:
        if request.env.seed is not None:
            return request.env.seed
        split = request.env.config.get("split") or next(iter(self.splits))
        if split not in self.splits:
            raise BadRequest(f"env.config.split = {split!r} is none of {', '.join(self.splits)}")
        return self.splits[split][0]

    def taskset(self) -> dict[str, Any]:
        """What there is to play, without a seed."""
        sizes = {split: len(seeds) for split, seeds in self.splits.items()}
        default = next(iter(self.splits))
        return {
            "id": self.task_id,
            "name": self.name,
            "version": self.version,
            "description": self.description,
            "splits": list(self.splits),
            "default_split": default,
            "sizes": sizes,
            "cardinality": sum(sizes.values()),
            "seed_range": _range(self.splits[default]),
            "seed_ranges": {split: _range(seeds) for split, seeds in self.splits.items()},
            "default_seed": self.splits[default][0],
            "reward_range": self.reward_range,
            "max_turns": self.max_turns,
        }

    def task_info(self, seed: int) -> dict[str, Any]:
        """The TaskInfo of one seed."""
        return {
            "task": {
                "id": self.task_id,
                "name": self.name,
                "description": self.description,
                "version": self.version,
            },
            "environment": self.name,
            "dataset": {
                "id": self.task_id,
                "name": self.name,
                "version": self.version,
                "splits": list(self.splits),
                "default_split": next(iter(self.splits)),
            },
            "rubric": {"outcome": None, "events": None},
            "inference": {"model": None, "inference_url": None},
            "limits": {"max_turns": self.max_turns},
            "reward_range": self.reward_range,
            "task_metadata": {"seed": seed, "reward_range": self.reward_range},
        }


def _splits(splits: Mapping[str, Iterable[int]] | None) -> dict[str, range | list[int]]:
    if not splits:
        return {"train": range(1_000_000)}
    kept = {name: seeds if isinstance(seeds, range) else list(seeds) for name, seeds in splits.items()}
    for name, seeds in kept.items():
        if not seeds:
            raise ConfigError(f"split {name!r} has no seeds")
    return kept


def _range(seeds: range | list[int]) -> list[int]:
    """Smallest and largest seed, both included."""
    return [min(seeds[0], seeds[-1]), max(seeds[0], seeds[-1])] if isinstance(seeds, range) else [
        min(seeds), max(seeds)
    ]  # fmt: skip
