"""The proof that a checkpoint carries: how its weights continue a fixed prompt. Imports no torch.

Whoever has it served later, without the trainer, compares the engine's answer with it. An engine
that kept older weights, or half of them, answers differently.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from headrace.contracts.policy import ProbeResult
from headrace.errors import JobFailed

PROOF = "proof.json"


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
        if not pairs:
            raise JobFailed("the engine answered the probe with no token")
        n = next((i + 1 for i, (ours, served) in enumerate(pairs) if ours != served), len(pairs))
        columns = (result.cold_logprobs, result.cached_logprobs)
        worst = max(abs(column[i] - self.logprobs[i]) for column in columns for i in range(n))
        if not worst <= limit:
            raise JobFailed(
                f"the engine does not serve the checkpoint's weights: its logprobs of the probe differ by "
                f"{worst:.3g} (limit {limit:.0e})"
            )
        return worst
