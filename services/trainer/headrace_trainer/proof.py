"""The proof that a checkpoint carries: how its weights continue a fixed prompt. Imports no torch.

Whoever has it served later, without the trainer, compares the engine's answer with it. An engine
that kept older weights, or half of them, answers differently.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from headrace.contracts.policy import ProbeResult
from headrace.errors import JobFailed

PROOF = "proof.json"


def gap(columns: Sequence[Sequence[float]], expected: Sequence[float]) -> float:
    """Largest difference of any column to `expected`.

    Infinite where there is nothing to compare or a value is not a number: no proof is no agreement.
    """
    if not expected or any(len(column) != len(expected) for column in columns):
        return math.inf
    gaps = [abs(a - b) for column in columns for a, b in zip(column, expected, strict=True)]
    return max(gaps) if all(map(math.isfinite, gaps)) else math.inf


@dataclass(frozen=True)
class Proof:
    """The greedy continuation of `prompt_ids`, with the log p of each of its tokens at temperature 1."""

    prompt_ids: list[int]
    sampled_ids: list[int]
    logprobs: list[float]

    def write(self, folder: Path) -> None:
        (folder / PROOF).write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, folder: Path) -> Proof | None:
        """The folder's proof; None for a model that no job of ours wrote."""
        try:
            return cls(**json.loads((folder / PROOF).read_bytes()))
        except FileNotFoundError:
            return None

    def check(self, result: ProbeResult, limit: float) -> float:
        """Largest difference to the engine's answer; raises JobFailed above `limit`.

        Two tokens of equal probability may be told apart by rounding, so the comparison ends with
        the first token that differs: its logprob must still be equal. It also ends where the engine
        stopped, since it stops at an end-of-turn token.
        """
        pairs = list(zip(self.sampled_ids, result.sampled_ids, strict=False))
        n = next((i + 1 for i, (ours, served) in enumerate(pairs) if ours != served), len(pairs))
        worst = gap([result.cold_logprobs[:n], result.cached_logprobs[:n]], self.logprobs[:n])
        if not worst <= limit:
            raise JobFailed(
                f"the engine does not serve the checkpoint's weights: its logprobs of the probe differ by "
                f"{worst:.3g} (limit {limit:.0e})"
            )
        return worst
