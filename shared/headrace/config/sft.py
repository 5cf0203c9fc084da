"""The config of an SFT job."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from headrace.config.base import Section, keys_present, refuse_difference
from headrace.config.sections import Backend, Compute, FreeTable, Tags


class Algorithm(Section):
    """`[algorithm]`: the family of the job."""

    type: Literal["offline"] = "offline"
    method: Literal["supervised_finetune", "sft"] = "sft"
    variety: Literal["fft", "lora"] = "fft"


class Job(Section):
    """`[job]`: what is trained on what."""

    model: str
    """Base model or model id, as in an RL job's `[model]`."""
    data: str | None = None
    """Chat JSONL with one conversation a line; relative to the working directory."""
    data_path: str | None = None
    """Same as data."""
    poll_seconds: int | None = None
    """Accepted for other clients; no effect."""


class Data(Section):
    """`[data]`."""

    validation_path: str | None = None
    """Chat JSONL on which the validation loss is computed."""
    topology: FreeTable = {}


class Validation(Section):
    """`[training.validation]`."""

    enabled: bool = True
    evaluation_strategy: Literal["steps", "epoch"] = "steps"
    eval_steps: int = Field(default=0, ge=0)
    """Validate after each so many steps; 0 means once per epoch."""
    save_best_model_at_end: bool = False
    metric_for_best_model: str = "val.loss"
    greater_is_better: bool = False


class Training(Section):
    """`[training]`."""

    mode: str | None = None
    use_qlora: Literal[False] = False
    validation: Validation | None = None


class Hyperparameters(Section):
    """`[hyperparameters]`."""

    n_epochs: int = Field(default=1, ge=1)
    max_steps: int | None = Field(default=None, ge=1)
    """Stop after so many optimiser steps, within an epoch too."""
    batch_size: int | None = Field(default=None, ge=1)
    """Conversations per optimiser step; absent means per_device_batch x gradient_accumulation_steps."""
    global_batch: int | None = Field(default=None, ge=1)
    """Same as batch_size."""
    per_device_batch: int | None = Field(default=None, ge=1)
    gradient_accumulation_steps: int = Field(default=1, ge=1)
    sequence_length: int | None = Field(default=None, ge=8)
    """Longest conversation in tokens; absent means the model's limit. Longer ones are refused by line."""
    learning_rate: float = Field(default=1e-5, gt=0)
    warmup_ratio: float = Field(default=0.0, ge=0, le=1)
    warmup_steps: int | None = Field(default=None, ge=0)
    """Wins over warmup_ratio."""
    schedule: Literal["constant", "cosine", "linear"] = "constant"
    weight_decay: float = Field(default=0.0, ge=0)
    max_grad_norm: float = Field(default=1.0, gt=0)
    max_tokens_per_microbatch: int = Field(default=16384, ge=64)
    seed: int = 0
    train_kind: Literal["fft", "sft", "lora"] = "fft"
    parallelism: FreeTable = {}
    checkpoint_every: int = Field(default=50, ge=1)
    """Write a resumable checkpoint after each so many steps."""


NOT_USED = (
    *("compute", "lora", "job.poll_seconds", "data.topology", "hyperparameters.parallelism"),
    *("training.mode", "training.validation.save_best_model_at_end"),
    *("training.validation.metric_for_best_model", "training.validation.greater_is_better"),
)
"""Accepted for other clients' sake and without effect; each job's events name those present."""


class SFTConfig(Section):
    """An SFT job."""

    job_type: Literal["sft"] | None = None
    type: Literal["sft"] | None = None
    algorithm: Algorithm = Algorithm()
    job: Job
    backend: Backend = Backend()
    compute: Compute | None = None
    data: Data = Data()
    training: Training = Training()
    hyperparameters: Hyperparameters = Hyperparameters()
    lora: FreeTable | None = None
    tags: Tags = {}

    @model_validator(mode="after")
    def _keys_agree(self) -> Self:
        if self.algorithm.variety == "lora" or self.hyperparameters.train_kind == "lora":
            raise ValueError('LoRA is not trained yet; use [algorithm] variety = "fft"')
        h = self.hyperparameters
        refuse_difference("[hyperparameters] batch_size and global_batch", h.batch_size, h.global_batch)
        refuse_difference("[job] data and data_path", self.job.data, self.job.data_path)
        return self

    @property
    def conversations_per_step(self) -> int:
        h = self.hyperparameters
        return h.batch_size or h.global_batch or (h.per_device_batch or 8) * h.gradient_accumulation_steps

    @property
    def not_used(self) -> tuple[str, ...]:
        """Keys present that have no effect."""
        names = NOT_USED
        if self.hyperparameters.batch_size or self.hyperparameters.global_batch:
            names += (
                "hyperparameters.per_device_batch",
                "hyperparameters.gradient_accumulation_steps",
            )
        return keys_present(self, names)
