"""What the job decides about a call's sampling, and what of the agent's request it replaces. Pure.

Design rule 6: what was sampled is what is scored, so every setting that changes the distribution
is the job's or neutral. The same holds in evaluation, where temperature 0 is greedy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace import ids
from headrace.contracts.policy import SessionOpen
from headrace.errors import BadRequest

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (None, 1),
    "best_of": (None, 1),
    "use_beam_search": (None, False),
    "top_p": (None, 1),
    "top_k": (None, 0, -1),
    "min_p": (None, 0),
    "presence_penalty": (None, 0),
    "frequency_penalty": (None, 0),
    "repetition_penalty": (None, 1),
    "logit_bias": (None, {}),
    "bad_words": (None, []),
    "allowed_token_ids": (None,),
    "min_tokens": (None, 0),
    "ignore_eos": (None, False),
    "tool_choice": (None, "auto", "none"),
    "response_format": (None, {"type": "text"}),
    "structured_outputs": (None,),
    "guided_json": (None,),
    "guided_regex": (None,),
    "guided_choice": (None,),
    "guided_grammar": (None,),
    "chat_template": (None,),
}
"""Values of the agent's keys that change nothing; any other is overridden."""


@dataclass(frozen=True)
class Decision:
    """How one call samples."""

    temperature: float
    max_tokens: int | None
    """The tighter of the job's and the agent's bound; what fits is decided with the prompt."""
    seed: int | None
    stop: tuple[str, ...]
    overridden: tuple[str, ...]

    def engine_parameters(self, room: int) -> dict[str, Any]:
        """`sampling_params` of a generate request with `room` tokens left."""
        parameters: dict[str, Any] = {
            "temperature": self.temperature,
            "max_tokens": room if self.max_tokens is None else min(self.max_tokens, room),
            "logprobs": 0,
            "detokenize": bool(self.stop),
        }
        if self.stop:
            parameters["stop"] = list(self.stop)
        if self.seed is not None and self.temperature > 0:
            parameters["seed"] = self.seed
        return parameters


def decide(session: SessionOpen, index: int, request: dict[str, Any]) -> Decision:
    """The sampling of call `index`; raises BadRequest for a bound or stop that makes no sense."""
    job = session.sampling
    overridden = [name for name, neutral in NEUTRAL.items() if request.get(name) not in neutral]
    asked = request.get("temperature")
    if asked is not None and asked != job.temperature:
        overridden.append("temperature")
    if request.get("seed") is not None:
        overridden.append("seed")
    seed = None
    if job.seed is not None:
        seed = ids.sampling_seed(job.seed, session.rollout_id, session.attempt, index)
    bounds = [bound for bound in (job.max_tokens, _asked_max_tokens(request)) if bound is not None]
    return Decision(
        temperature=job.temperature,
        max_tokens=min(bounds, default=None),
        seed=seed,
        stop=_stop(request.get("stop")),
        overridden=tuple(sorted(overridden)),
    )


def _asked_max_tokens(request: dict[str, Any]) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        value = request.get(name)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise BadRequest(f"{name} must be a positive integer, got {value!r}")
        return value
    return None


def _stop(value: Any) -> tuple[str, ...]:
    stops = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else ()
    is_other = value is not None and not isinstance(value, str | list)
    if is_other or not all(isinstance(stop, str) and stop for stop in stops):
        raise BadRequest(f"stop must be a text or a list of texts, got {value!r}")
    return stops
