"""Policy weights between a folder in HF layout and torch."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from headrace.errors import JobFailed

Dtype = Literal["float32", "bfloat16", "float16"]

WEIGHTS = "model.safetensors"
COMPANIONS = (
    "config.json",
    "generation_config.json",
    "tokenizer*.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "chat_template.*",
    "additional_chat_templates/*",
)
"""Files beside the weights that make a folder loadable; they are copied, never written anew."""
_SCALED_LOGITS = {"final_logit_softcapping": None, "logit_scale": 1.0, "logits_scaling": 1.0}
"""Config keys of models that change logits behind the head, and the value that does not."""


def load_policy(
    folder: Path, *, dtype: Dtype = "float32", device: str = "cpu", gradient_checkpointing: bool = False
) -> Any:
    """The causal language model in `folder` (HF layout), dropout off, ready to train.

    Raises JobFailed for a folder that transformers cannot load whole, or a model that scales its
    logits behind the head, where the logprob function would miss it.
    """
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        _refuse_scaled_logits(folder, config)
        _turn_off_dropout(config)
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder,
            config=config,
            dtype=getattr(torch, dtype),
            attn_implementation="sdpa",
            local_files_only=True,
            output_loading_info=True,
        )
    except (OSError, ValueError) as error:
        raise JobFailed(f"no model can be loaded from {folder}: {error}") from error
    model, info = loaded
    absent = sorted(info["missing_keys"]) + sorted(str(key) for key in info["mismatched_keys"])
    if absent:
        raise JobFailed(
            f"the weights in {folder} lack {absent[0]} and {len(absent) - 1} more; "
            "they would start from random numbers, so copy the whole model"
        )
    model.to(device)
    if gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        return model.train()
    return model.eval()


def _refuse_scaled_logits(folder: Path, config: Any) -> None:
    for key, neutral in _SCALED_LOGITS.items():
        value = getattr(config, key, neutral)
        if value not in (None, neutral):
            raise JobFailed(
                f"the model in {folder} has {key} = {value}, which is not trained yet; "
                "use a model whose head gives its logits directly"
            )


def _turn_off_dropout(config: Any) -> None:
    """So that train mode, which gradient checkpointing needs, scores what was sampled."""
    for key, value in list(vars(config).items()):
        if key.endswith(("dropout", "pdrop")) and isinstance(value, float):
            setattr(config, key, 0.0)


def save_policy(model: Any, source_folder: Path, folder: Path) -> None:
    """Write `model` to `folder` in HF layout: config, generation config and tokenizer files as they are in
    `source_folder`, weights as `model.safetensors` (a tied head once).

    `folder` is created; seal it (`headrace.artifacts.files.seal_folder`) before anyone reads it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for pattern in COMPANIONS:
        for path in sorted(source_folder.glob(pattern)):
            copied = folder / path.relative_to(source_folder)
            copied.parent.mkdir(exist_ok=True)
            shutil.copyfile(path, copied)
    save_file(_weights(model), folder / WEIGHTS, metadata={"format": "pt"})


def _weights(model: Any) -> dict[str, Tensor]:
    """All weights by name; of names that share memory only the first (the embedding, for a tied head)."""
    weights: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in model.state_dict().items():
        if tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            weights[name] = tensor.detach().contiguous()
    return weights


def weights_hash(model: Any) -> str:
    """sha256 over names, shapes and bytes of all weights: equal exactly when the weights are."""
    digest = hashlib.sha256()
    for name, tensor in _weights(model).items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.cpu().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def max_model_len(model: Any) -> int:
    """Positions the model was made for."""
    return int(model.config.get_text_config().max_position_embeddings)


def vocab_size(model: Any) -> int:
    """Rows of the embedding: token ids lie below it."""
    return int(model.get_input_embeddings().num_embeddings)
