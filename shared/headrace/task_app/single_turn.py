"""One question, one answer: a dataset and a reward function are a task."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.errors import BadRequest, DataError
from headrace.task_app.environment import Action, Environment, StepResult

Row = dict[str, Any]
RewardFn = Callable[[Action, Row], "float | StepResult | Awaitable[float | StepResult]"]


class SingleTurn:
    """Environments over the rows of a dataset; the seed is the number of the row, from 0.

    `dataset`: a list of rows, or a path to JSONL. A row has `prompt` (text) or `messages` (a chat
    that the policy continues) and whatever else `reward_fn(reply, row)` needs. The reward function
    may be `async def` or `def`, and returns a number or a whole `StepResult`.

        TaskApp(SingleTurn(rows, lambda reply, row: float(row["answer"] in reply)), task_id="sums")
    """

    def __init__(
        self,
        dataset: Sequence[Row] | str | Path,
        reward_fn: RewardFn,
        *,
        splits: Mapping[str, Iterable[int]] | None = None,
        system: str | None = None,
        inline: bool = False,
    ) -> None:
        self.rows = _read(Path(dataset)) if isinstance(dataset, str | Path) else list(dataset)
        _check(self.rows)
        self.splits = dict(splits) if splits is not None else {"train": range(len(self.rows))}
        self.max_turns = 1
        self._reward_fn, self._system, self._inline = reward_fn, system, inline

    def __call__(self) -> Environment:
        kind = _AsyncRowEnvironment if inspect.iscoroutinefunction(self._reward_fn) else _RowEnvironment
        return kind(self.rows, self._reward_fn, self._system, self._inline)


class _RowEnvironment(Environment):
    def __init__(self, rows: list[Row], reward_fn: Any, system: str | None, inline: bool) -> None:
        self._rows, self._reward_fn, self.system, self.inline = rows, reward_fn, system, inline

    def reset(self, seed: int) -> Any:
        if not 0 <= seed < len(self._rows):
            raise BadRequest(f"seed {seed} is no row of the dataset; it has rows 0 to {len(self._rows) - 1}")
        self._row = self._rows[seed]
        return self._row["messages"] if "messages" in self._row else self._row["prompt"]

    def opening(self, observation: Any) -> list[dict[str, Any]]:
        if "messages" not in self._row:
            return super().opening(observation)
        messages = list(self._row["messages"])
        if self.system is not None and messages[0].get("role") != "system":
            messages.insert(0, {"role": "system", "content": self.system})
        return messages

    def step(self, action: Action) -> Any:
        return _ended(self._reward_fn(action, self._row))


class _AsyncRowEnvironment(_RowEnvironment):
    async def step(self, action: Action) -> StepResult:
        return _ended(await self._reward_fn(action, self._row))


def _ended(judged: Any) -> StepResult:
    if isinstance(judged, StepResult):
        return StepResult(
            judged.observation, judged.reward, True, judged.truncated,
            judged.events, judged.invalid, judged.info,
        )  # fmt: skip
    return StepResult(reward=judged, done=True)


def _read(path: Path) -> list[Row]:
    rows = []
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError as error:
                raise DataError(f"{path} line {number} is not JSON: {error}") from error
    return rows


def _check(rows: list[Row]) -> None:
    if not rows:
        raise DataError("the dataset has no rows")
    for number, row in enumerate(rows):
        prompt, messages = (row.get("prompt"), row.get("messages")) if isinstance(row, dict) else (None, None)
        if not (isinstance(prompt, str) or (isinstance(messages, list) and messages)):
            raise DataError(f"row {number} of the dataset needs `prompt` (text) or `messages` (a list)")
