"""Values that are understood and do not act: refused by our own command, replaced for other clients.

Each has its reason. What is in no register here and not in a model is an unknown key or a wrong value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.config.notes import Replaced, shown
from headrace.config.paths import ABSENT, Raw, get, with_value, without, written
from headrace.contracts.job import JobType

_ADAPTERS = "adapters are not trained yet, all weights are"
_SAMPLED = "tokens are scored under the plain softmax, so they must be sampled from it"
_ALIKE = "greedy decoding makes all members of a group alike, so there is nothing to learn"
_RECORD = "the gateway itself captures prompts, tokens and logprobs, and asks task apps for the compact trace"


@dataclass(frozen=True)
class Refusal:
    """A key of which some values do not act."""

    key: str
    is_refused: Callable[[Any], bool]
    used: Any
    """What other clients get instead; None: the key is left out."""
    why: str
    is_strict: bool = True
    """False where our own command takes the value, too, or another rule has the sentence."""

    def sentence(self, value: Any) -> str:
        fix = "leave it out" if self.used is None else f"use {shown(self.used)}"
        return f"{written(self.key)} = {shown(value)} is refused: {self.why}; {fix}"


def _one_of(*values: str) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and value.lower() in values


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number_but(*accepted: float) -> Callable[[Any], bool]:
    return lambda value: _is_number(value) and value not in accepted


def _is_true(value: Any) -> bool:
    return value is True


def _is_zero(value: Any) -> bool:
    return _is_number(value) and value == 0


def _names_adapters(value: Any) -> bool:
    return isinstance(value, str) and "lora" in value.lower()


_SAMPLING = (
    Refusal("policy.top_p", _number_but(1), None, _SAMPLED),
    Refusal("policy.top_k", _number_but(-1, 0), None, _SAMPLED),
    Refusal("policy.repetition_penalty", _number_but(1), None, _SAMPLED),
    Refusal(
        "policy.stop_sequences", lambda value: isinstance(value, list) and bool(value), None,
        "a reply ends at the model's own end token or at max_tokens, so that its tokens are whole",
    ),
    Refusal("policy.constrained", _is_true, False, "a grammar samples from another distribution than is scored"),
)  # fmt: skip

REFUSED: dict[JobType, tuple[Refusal, ...]] = {
    JobType.RL: (
        Refusal(
            "algorithm.method", _one_of("reinforce"), "policy_gradient",
            "REINFORCE without a clip is not trained, the clipped policy gradient is",
        ),
        Refusal(
            "algorithm.variety", _one_of("ppo"), "grpo",
            "no value model is trained, a group's mean is the baseline",
        ),
        Refusal("model.trainer_mode", _one_of("lora", "qlora"), "full", _ADAPTERS),
        Refusal("policy.trainer_mode", _one_of("lora", "qlora"), "full", _ADAPTERS),
        Refusal(
            "training.max_staleness", _number_but(0), 0,
            "an iteration waits for its rollouts, so none is behind the policy",
        ),
        Refusal(
            "training.weight_sync_interval", _number_but(1), 1,
            "weights are published after each iteration",
        ),
        Refusal(
            "training.rollouts.reference", lambda value: True, None,
            "the reference policy is not played while training; an evaluation job over the base model with "
            "the same seeds gives the comparison",
        ),
        Refusal("training.rollouts.record.format", _one_of("full", "structured"), "compact", _RECORD),
        Refusal("training.rollouts.record.logprobs", _is_true, False, _RECORD),
        Refusal("policy.temperature", _is_zero, None, _ALIKE),
        Refusal("rollout.policy_config.temperature", _is_zero, None, _ALIKE, is_strict=False),
        *_SAMPLING,
    ),
    JobType.SFT: (
        Refusal("algorithm.variety", _names_adapters, "fft", _ADAPTERS),
        Refusal("training.mode", _names_adapters, None, _ADAPTERS),
        Refusal("training.use_qlora", _is_true, False, _ADAPTERS),
        Refusal(
            "hyperparameters.train_kind",
            lambda value: isinstance(value, str) and value.lower() not in ("fft", "sft"), "fft", _ADAPTERS,
        ),
    ),
    JobType.EVAL: _SAMPLING,
}  # fmt: skip
"""Per job type, the values that a job does not follow."""


def refuse(job_type: JobType, raw: Raw) -> tuple[Raw, list[str]]:
    """`raw` without the refused values, and a sentence on each."""
    problems = []
    for refusal in REFUSED[job_type]:
        value = get(raw, refusal.key)
        if refusal.is_strict and value is not ABSENT and refusal.is_refused(value):
            problems.append(refusal.sentence(value))
            raw = without(raw, refusal.key)
    return raw, problems


def replace(job_type: JobType, raw: Raw) -> tuple[Raw, list[Replaced]]:
    """`raw` with what acts in place of the refused values, and an account of each."""
    replaced = []
    for refusal in REFUSED[job_type]:
        value = get(raw, refusal.key)
        if value is not ABSENT and refusal.is_refused(value):
            replaced.append(Replaced(written(refusal.key), value, refusal.used, refusal.why))
            raw = (
                without(raw, refusal.key)
                if refusal.used is None
                else with_value(raw, refusal.key, refusal.used)
            )
    return raw, replaced
