"""From `[training] loss` to a function: ours by name, the user's own by import path."""

from __future__ import annotations

import hashlib
import importlib
import inspect
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from headrace.config.rl import Training
from headrace.errors import ConfigError
from headrace_trainer.losses.cispo import cispo
from headrace_trainer.losses.dppo import dppo
from headrace_trainer.losses.gspo import gspo
from headrace_trainer.losses.ppo import ppo_clip
from headrace_trainer.losses.sapo import sapo
from headrace_trainer.losses.tokens import LossFunction, LossTokens, TokenLoss


def loss_function(training: Training, plugins: tuple[str, ...] = ()) -> LossFunction:
    """The policy loss of a job with its options bound.

    Raises ConfigError for an import path outside `plugins`, or one that does not lead to a function.
    """
    match training.loss:
        case "ppo_clip":
            return partial(
                ppo_clip,
                clip_low=training.bound_low,
                clip_high=training.bound_high,
                dual_clip=training.dual_clip,
                ratio_cap=training.ratio_cap,
            )
        case "gspo":
            return partial(gspo, clip_low=training.bound_low, clip_high=training.bound_high)
        case "cispo":
            return partial(cispo, ratio_cap=training.ratio_cap or CISPO_CAP)
        case "sapo":
            return partial(
                sapo,
                temperature_positive=training.sapo_temperature_positive,
                temperature_negative=training.sapo_temperature_negative,
            )
        case "dppo":
            return partial(dppo, max_shift=training.dppo_max_shift, pull=training.dppo_pull)
        case path:
            return _checked(path, imported("[training] loss", path, plugins))


CISPO_CAP = 5.0
"""Largest weight of a token where the config names none (ScaleRL 2025)."""


def imported(key: str, path: str, plugins: tuple[str, ...]) -> Callable[..., Any]:
    """The function at `package.module:name`; only packages that the operator lists may be imported."""
    module, _, name = path.partition(":")
    if module.partition(".")[0] not in plugins:
        raise ConfigError(
            f"{key} = {path!r}: package {module.partition('.')[0]!r} is not among this server's plugins "
            f"({', '.join(plugins) or 'none'}); the operator lists it in HEADRACE_PLUGINS"
        )
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{key} = {path!r} cannot be imported: {error}") from error
    if not callable(found):
        raise ConfigError(f"{key} = {path!r} is no function")
    return found


def source_sha256(function: Callable[..., Any]) -> str:
    """sha256 of the source of the module that a loss comes from: what a run was trained with."""
    source = inspect.unwrap(function.func if isinstance(function, partial) else function)
    return hashlib.sha256(inspect.getsource(inspect.getmodule(source) or source).encode()).hexdigest()


def _checked(path: str, function: Callable[..., Any]) -> LossFunction:
    """The user's loss, held to the signature."""

    @wraps(function)
    def loss(tokens: LossTokens) -> TokenLoss:
        found = function(tokens)
        if not isinstance(found, TokenLoss) or found.loss_N.shape != tokens.logprobs_N.shape:
            raise ConfigError(
                f"[training] loss = {path!r} must return a TokenLoss with one value per token "
                f"({tokens.logprobs_N.numel()} here)"
            )
        return found

    return loss
