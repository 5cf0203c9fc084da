"""AdamW, the learning rate as a function of the step, and the one place where weights move."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch

from headrace.errors import JobFailed

Schedule = Literal["constant", "cosine", "linear"]


def make_optimizer(
    model: torch.nn.Module,
    *,
    learning_rate: float,
    weight_decay: float = 0.0,
    betas: tuple[float, float] = (0.9, 0.95),
    eps: float = 1e-8,
) -> torch.optim.AdamW:
    """AdamW over all trainable parameters.

    Only weight matrices decay; norms, biases and embeddings (a tied head included) do not, since
    shrinking those changes scale, not complexity.
    """
    embeddings = {
        id(parameter)
        for module in model.modules()
        if isinstance(module, torch.nn.Embedding)
        for parameter in module.parameters(recurse=False)
    }
    decayed, kept = [], []
    for parameter in model.parameters():
        if parameter.requires_grad:
            is_matrix = parameter.ndim >= 2 and id(parameter) not in embeddings
            (decayed if is_matrix else kept).append(parameter)
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": kept, "weight_decay": 0.0}]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]], lr=learning_rate, betas=betas, eps=eps, foreach=False
    )


def learning_rate_at(
    step: int, *, peak: float, warmup_steps: int = 0, schedule: Schedule = "constant", total_steps: int = 0
) -> float:
    """Learning rate of optimiser step `step` (from 1): linear warm-up to `peak`, then the schedule.

    `cosine` and `linear` fall to 0 one step after `total_steps`, so the last step still trains.

    >>> [learning_rate_at(step, peak=1.0, warmup_steps=2) for step in (1, 2, 3)]
    [0.5, 1.0, 1.0]
    """
    if step <= warmup_steps:
        return peak * step / warmup_steps
    if schedule == "constant":
        return peak
    share = min(1.0, (step - warmup_steps - 1) / max(1, total_steps - warmup_steps))
    return peak * (1 - share) if schedule == "linear" else peak * 0.5 * (1 + math.cos(math.pi * share))


def clip_and_step(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, *, learning_rate: float, max_grad_norm: float
) -> float:
    """Clip the gradient to `max_grad_norm`, move the weights, clear the gradient.

    Returns the norm before clipping. Raises JobFailed, with the weights untouched, when it is not
    finite.
    """
    parameters: list[Any] = [p for p in model.parameters() if p.requires_grad]
    grad_norm = float(torch.nn.utils.clip_grad_norm_(parameters, max_grad_norm, foreach=False))
    if not math.isfinite(grad_norm):
        optimizer.zero_grad(set_to_none=True)
        raise JobFailed(
            f"the gradient norm is {grad_norm}, so no step was taken; lower [training] learning_rate or "
            "look at the trajectories of this iteration"
        )
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return grad_norm
