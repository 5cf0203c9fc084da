"""What an inference request asks for: which of its keys act, which are left out, which are refused. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from headrace.contracts.policy import Sampling
from headrace.errors import BadRequest

IGNORED = (
    *("thinking_budget", "thinking_mode", "stop_after_tool_calls", "function_call"),
    *("parallel_tool_calls", "extra_body"),
)
"""Keys of other clients that have no effect here and are not forwarded."""
MAX_TEMPERATURE = 2.0


@dataclass(frozen=True)
class Question:
    """One chat completion that a caller asks for."""

    model: str
    body: dict[str, Any]
    """What the policy gateway gets."""
    sampling: Sampling
    is_stream: bool

    @classmethod
    def parse(cls, body: dict[str, Any]) -> Question:
        """Check what the API itself reads; the gateway checks the rest. Raises BadRequest."""
        model = body.get("model")
        if not isinstance(model, str) or not model.strip():
            raise BadRequest(
                '"model" must name a model: `ft:<base>:<job>`, `checkpoint:<id>` or a base model; see GET /models'
            )
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            raise BadRequest('"messages" must be a list of at least one message')
        if body.get("n") not in (None, 1):
            raise BadRequest(f'"n" = {body["n"]!r} is not supported; send one request for each answer')
        if not isinstance(body.get("stream", False), bool | None):
            raise BadRequest(f'"stream" must be true or false, got {body["stream"]!r}')
        forwarded = {key: value for key, value in body.items() if key not in IGNORED}
        sampling = Sampling(temperature=_temperature(body), seed=_seed(body))
        return cls(model.strip(), forwarded, sampling, bool(body.get("stream")))


def _temperature(body: dict[str, Any]) -> float:
    value = body.get("temperature")
    if value is None:
        return 1.0
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number or not 0 <= value <= MAX_TEMPERATURE:
        raise BadRequest(f'"temperature" must be a number from 0 to {MAX_TEMPERATURE:g}, got {value!r}')
    return float(value)


def _seed(body: dict[str, Any]) -> int | None:
    value = body.get("seed")
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise BadRequest(f'"seed" must be an integer, got {value!r}')
    return value
