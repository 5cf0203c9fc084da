"""The config of an SFT job."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from headrace.config.base import Lowered, Section, Unused
from headrace.config.sections import Backend, Compute, Seed, Tags

MAX_EPOCHS = 1_000_000


class Algorithm(Section):
    """`[algorithm]`: the family of the job."""

    type: Annotated[Literal["offline"], Lowered] = "offline"
    """Makes the job an SFT job."""
    method: Annotated[Literal["supervised_finetune", "sft"], Lowered] = "sft"
    """Both names mean the cross entropy of the assistant's tokens."""
    variety: Annotated[Literal["fft"], Lowered] = "fft"
    """All weights are trained."""


class Job(Section):
    """`[job]`: what is trained on what."""

    model: str
    """Base model or model id, as in an RL job's `[model]`."""
    data: str | None = None
    """Chat JSONL with one conversation a line; relative to the working directory."""
    data_path: str | None = None
    """Same as data."""
    poll_seconds: Unused = None


class Data(Section):
    """`[data]`."""

    validation_path: str | None = None
    """Chat JSONL on which the validation loss is computed."""
    topology: Unused = None


class Validation(Section):
    """`[training.validation]`."""

    enabled: bool = True
    """Off leaves the validation file unused."""
    evaluation_strategy: Literal["steps", "epoch"] = "steps"
    """`epoch` validates once per epoch, whatever `eval_steps` is."""
    eval_steps: int = Field(default=0, ge=0)
    """Validate after each so many steps; 0 means once per epoch."""
    save_best_model_at_end: Unused = None
    metric_for_best_model: Unused = None
    greater_is_better: Unused = None


class Training(Section):
    """`[training]`."""

    mode: Unused = None
    use_qlora: Literal[False] = False
    """All weights are trained."""
    validation: Validation | None = None


class Hyperparameters(Section):
    """`[hyperparameters]`."""

    n_epochs: int = Field(default=1, ge=1, le=MAX_EPOCHS)
    """Passes over the dataset."""
    max_steps: int | None = Field(default=None, ge=1)
    """Stop after so many optimiser steps, within an epoch too."""
    batch_size: int | None = Field(default=None, ge=1)
    """Conversations per optimiser step; absent means per_device_batch x gradient_accumulation_steps."""
    global_batch: int | None = Field(default=None, ge=1)
    """Same as batch_size."""
    per_device_batch: int | None = Field(default=None, ge=1)
    """With gradient_accumulation_steps as its factor, the conversations of a step; absent means 8."""
    gradient_accumulation_steps: int = Field(default=1, ge=1)
    """Factor of per_device_batch; without effect where batch_size is set."""
    sequence_length: int | None = Field(default=None, ge=8)
    """Longest conversation in tokens; absent means the model's limit. Longer ones are refused by line."""
    learning_rate: float = Field(default=1e-5, gt=0)
    """Peak of the schedule."""
    warmup_ratio: float = Field(default=0.0, ge=0, le=1)
    """Share of all steps over which the learning rate rises from 0."""
    warmup_steps: int | None = Field(default=None, ge=0)
    """Wins over warmup_ratio."""
    schedule: Literal["constant", "cosine", "linear"] = "constant"
    """Of the learning rate behind the warm-up; the last two fall to 0 at the last step."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Of matrices only (AdamW)."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    """A longer gradient is shortened to this."""
    max_tokens_per_microbatch: int = Field(default=16384, ge=64)
    """Tokens of one forward pass, padding included; bounds memory and changes no gradient."""
    seed: Seed = 0
    """Seeds the order of conversations in each epoch."""
    train_kind: Annotated[Literal["fft", "sft"], Lowered] = "fft"
    """All weights are trained."""
    parallelism: Unused = None
    checkpoint_every: int = Field(default=50, ge=1)
    """Write a resumable checkpoint after each so many steps."""


class SFTConfig(Section):
    """An SFT job."""

    job_type: Literal["sft"] | None = None
    """Same as `type`."""
    type: Literal["sft"] | None = None
    """Says that this is an SFT job; `[algorithm]` says so, too."""
    algorithm: Algorithm = Algorithm()
    job: Job
    backend: Backend = Backend()
    compute: Compute | None = None
    data: Data = Data()
    training: Training = Training()
    hyperparameters: Hyperparameters = Hyperparameters()
    lora: Unused = None
    tags: Tags = {}
    """Your own names and plain values, by which jobs are found again."""

    @property
    def conversations_per_step(self) -> int:
        h = self.hyperparameters
        return h.batch_size or h.global_batch or (h.per_device_batch or 8) * h.gradient_accumulation_steps

    @property
    def not_used(self) -> tuple[str, ...]:
        """Keys present that another key present leaves without effect."""
        h = self.hyperparameters
        if not (h.batch_size or h.global_batch):
            return ()
        return tuple(f"hyperparameters.{key}" for key in _FACTORS if key in h.model_fields_set)


_FACTORS = ("per_device_batch", "gradient_accumulation_steps")
