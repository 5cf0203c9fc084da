"""TRL's own loss: the method of its trainer, called on numbers instead of a model."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import torch
from tests.parity.batches import Padded
from torch import Tensor


def trl_loss(
    batch: Padded,
    *,
    loss_type: str,
    level: str = "token",
    epsilon_low: float = 0.2,
    epsilon_high: float = 0.28,
    delta: float | None = None,
    beta: float = 0.0,
    importance_BT: Tensor | None = None,
    max_completion_length: int = 64,
    sapo: tuple[float, float] = (1.0, 1.05),
) -> tuple[Tensor, Tensor]:
    """The loss, and its gradient with respect to the logprobs of all positions, shape (B, T)."""
    from trl.trainer.grpo_trainer import (
        GRPOTrainer,
    )  # takes 12 s, which a run that deselects this need not pay

    leaf_BT = batch.logprobs_BT.clone().requires_grad_()
    trainer: Any = GRPOTrainer.__new__(GRPOTrainer)
    trainer.__dict__.update(
        loss_type=loss_type,
        importance_sampling_level=level,
        epsilon_low=epsilon_low,
        epsilon_high=epsilon_high,
        beta=beta,
        max_completion_length=max_completion_length,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        aux_loss_enabled=False,
        use_vllm=importance_BT is not None,
        vllm_importance_sampling_correction=True,
        current_gradient_accumulation_steps=1,
        _entropy_bonus_enabled=False,
        _metrics={"train": defaultdict(list), "eval": defaultdict(list)},
        model=SimpleNamespace(training=True),
        args=SimpleNamespace(
            delta=delta,
            use_bias_correction_kl=False,
            steps_per_generation=1,
            sapo_temperature_pos=sapo[0],
            sapo_temperature_neg=sapo[1],
        ),
        accelerator=SimpleNamespace(
            num_processes=1, gather=lambda x: x, reduce=lambda x, reduction: x, device=torch.device("cpu")
        ),
    )
    trainer._get_per_token_logps_and_entropies = lambda *_, **__: (leaf_BT, torch.zeros_like(leaf_BT), None)
    ids = torch.zeros(batch.mask_BT.shape, dtype=torch.long)
    inputs = {
        "prompt_ids": ids[:, :1],
        "prompt_mask": ids[:, :1],
        "completion_ids": ids,
        "completion_mask": batch.mask_BT,
        "advantages": batch.advantages_B,
        "old_per_token_logps": batch.old_BT,
        "ref_per_token_logps": batch.reference_BT,
        "num_items_in_batch": batch.mask_BT.sum(),
    }
    if importance_BT is not None:
        inputs["importance_sampling_ratio"] = importance_BT
    loss = GRPOTrainer._compute_loss(trainer, None, inputs)
    (gradient_BT,) = torch.autograd.grad(loss, leaf_BT)
    return loss.detach(), gradient_BT
