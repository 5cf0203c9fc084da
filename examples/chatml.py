"""A byte-level tokenizer with a ChatML template: nothing to train, nothing to download.

Each byte is a token, so any text has tokens; the words given are one token each. A word counts only
where it stands alone between special tokens, spaces or line breaks; a line break may be part of it
(`"\\nFFHF"`), which lets a whole row of a grid be one token.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

PADDING = "<|endoftext|>"
TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"
MODEL_LENGTH = 512
"""Longest sequence in tokens."""
ROLES = ("system", "user", "assistant", "tool")

# Every message renders to the same text wherever it stands, so a longer conversation begins with
# the exact text of a shorter one and an episode stays one token sequence.
TEMPLATE = (
    "{%- for message in messages -%}"
    "{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') + '<|im_end|>\\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
)

# A line break belongs to the word behind it, a space to nothing, and everything else stands alone.
_PIECES = r"\n?\p{L}+|[^\p{L}]"


def build(words: Sequence[str] = ()):
    """A `tokenizers.Tokenizer` of 3 special tokens, 256 bytes, 4 role names and `words`."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    symbols = sorted(pre_tokenizers.ByteLevel.alphabet())
    spelled = ["".join(piece for piece, _ in byte_level.pre_tokenize_str(word)) for word in (*ROLES, *words)]
    tokens = dict.fromkeys([PADDING, TURN_START, TURN_END, *symbols, *spelled])
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(_PIECES), "isolated"), byte_level]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([PADDING, TURN_START, TURN_END])
    return tokenizer


def save(folder: Path, words: Sequence[str] = ()) -> None:
    """Write tokenizer.json and tokenizer_config.json (with the template) as transformers reads them."""
    build(words).save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": TURN_END,
        "pad_token": PADDING,
        "clean_up_tokenization_spaces": False,
        "model_max_length": MODEL_LENGTH,
        "chat_template": TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")
