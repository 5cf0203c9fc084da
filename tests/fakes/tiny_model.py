"""Makes the folder of a tiny Qwen3 model with random weights: real files that vLLM and transformers load.

It needs neither torch nor transformers, so it takes milliseconds.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
ROLES = ("system", "user", "assistant", "tool")

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Plain ChatML, without tools."""

CHATML_TOOLS = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- '# Tools\\n<tools>' }}
    {%- for tool in tools %}
        {{- '\\n' }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- '\\n</tools>\\nAnswer with <tool_call>{"name": ..., "arguments": ...}</tool_call><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' + (message.content or '') }}
        {%- for tool_call in message.tool_calls or [] %}
            {%- if loop.index0 or message.content %}
                {{- '\\n' }}
            {%- endif %}
            {{- '<tool_call>\\n{"name": "' + tool_call.function.name + '", "arguments": ' }}
            {{- tool_call.function.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- elif not (loop.first and message.role == 'system') %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}"""
"""ChatML with tools and tool replies, in the manner of Qwen's own template."""


def make_tiny_model(
    folder: Path, seed: int = 0, *, chat_template: str | None = None, positions: int = 1024
) -> Path:
    """Write a Qwen3 model of 626,496 random fp32 parameters in HF layout; returns `folder`.

    Tokenizer: 256 bytes, 19 merges that make one token of each role word, 3 special tokens.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer()
    vocabulary = tokenizer.get_vocab()
    eos, pad = vocabulary[TURN_END], vocabulary[END_OF_TEXT]
    config = _config(len(vocabulary), eos, pad) | {"max_position_embeddings": positions}
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    save_file(_weights(config, seed), folder / "model.safetensors", metadata={"format": "pt"})
    tokenizer.save(str(folder / "tokenizer.json"))
    facts = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": TURN_END,
        "pad_token": END_OF_TEXT,
        "clean_up_tokenization_spaces": False,
        "model_max_length": config["max_position_embeddings"],
        "chat_template": CHATML if chat_template is None else chat_template,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(facts, indent=1))
    generation = {"eos_token_id": [eos, pad], "pad_token_id": pad}
    (folder / "generation_config.json").write_text(json.dumps(generation))
    return folder


def _tokenizer() -> Tokenizer:
    symbols = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [(word[:n], word[n]) for word in ROLES for n in range(1, len(word))]
    tokens = [*symbols, *(left + right for left, right in merges)]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
    special = (END_OF_TEXT, TURN_START, TURN_END)
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special])
    return tokenizer


def _config(vocab_size: int, eos: int, pad: int) -> dict[str, object]:
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "dtype": "float32",
        "vocab_size": vocab_size,
        "hidden_size": 128,
        "intermediate_size": 384,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "hidden_act": "silu",
        "max_position_embeddings": 1024,
        "initializer_range": 0.02,
        "rms_norm_eps": 1e-6,
        "use_cache": True,
        "tie_word_embeddings": True,
        "rope_theta": 10000.0,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "use_sliding_window": False,
        "eos_token_id": eos,
        "pad_token_id": pad,
    }


def _weights(config: dict[str, object], seed: int) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)

    def matrix(rows: int, columns: int) -> np.ndarray:
        return draw.normal(0.0, 0.02, (rows, columns)).astype(np.float32)

    def ones(size: int) -> np.ndarray:
        return np.ones(size, dtype=np.float32)

    hidden, inner, vocabulary = 128, 384, int(str(config["vocab_size"]))
    weights = {"model.embed_tokens.weight": matrix(vocabulary, hidden), "model.norm.weight": ones(hidden)}
    for layer in range(3):
        at = f"model.layers.{layer}"
        weights |= {
            f"{at}.self_attn.q_proj.weight": matrix(4 * 32, hidden),
            f"{at}.self_attn.k_proj.weight": matrix(2 * 32, hidden),
            f"{at}.self_attn.v_proj.weight": matrix(2 * 32, hidden),
            f"{at}.self_attn.o_proj.weight": matrix(hidden, 4 * 32),
            f"{at}.self_attn.q_norm.weight": ones(32),
            f"{at}.self_attn.k_norm.weight": ones(32),
            f"{at}.mlp.gate_proj.weight": matrix(inner, hidden),
            f"{at}.mlp.up_proj.weight": matrix(inner, hidden),
            f"{at}.mlp.down_proj.weight": matrix(hidden, inner),
            f"{at}.input_layernorm.weight": ones(hidden),
            f"{at}.post_attention_layernorm.weight": ones(hidden),
        }
    return weights
