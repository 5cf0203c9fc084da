"""A randomly initialised Qwen3 of about 0.63 million parameters: small enough to train on one CPU core.

It has learned nothing: supervised fine-tuning on demonstrations gives it its first skill.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from examples import chatml


def make(folder: Path, words: Sequence[str] = (), seed: int = 0) -> int:
    """Write model and tokenizer in Hugging Face layout; returns the number of parameters."""
    import torch
    from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = chatml.build(words)
    end, padding = tokenizer.token_to_id(chatml.TURN_END), tokenizer.token_to_id(chatml.PADDING)
    config = Qwen3Config(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        intermediate_size=384,
        max_position_embeddings=chatml.MODEL_LENGTH,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=end,
        pad_token_id=padding,
        dtype="float32",
    )
    torch.manual_seed(seed)
    model = Qwen3ForCausalLM(config)
    model.generation_config = GenerationConfig(eos_token_id=end, pad_token_id=padding)
    model.save_pretrained(folder)
    chatml.save(folder, words)
    return sum(parameter.numel() for parameter in model.parameters())
