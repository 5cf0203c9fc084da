"""Model folders with the chat templates of known families, all over one small tokenizer."""

from __future__ import annotations

import json
from pathlib import Path

from tests.fakes.tiny_model import make_tiny_model
from tokenizers import AddedToken, Tokenizer

from headrace.render import Renderer

TEMPLATES = Path(__file__).parents[1] / "unit/render/templates"
SPECIAL = ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
PLAIN = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
"""One token each, and text all the same: they stay when special tokens are left out."""
STOPS = {
    "qwen3": ("<|im_end|>", "<|endoftext|>"),
    "llama3": ("<|eot_id|>", "<|end_of_text|>"),
    "parts": ("<|im_end|>", "<|endoftext|>"),
}


def template_of(name: str) -> str:
    return (TEMPLATES / f"{name}.jinja").read_text()


def template_model(folder: Path, name: str) -> Path:
    """A tiny model's folder with the template `name` and its stop tokens, over the one tokenizer."""
    make_tiny_model(folder, chat_template=template_of(name))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in SPECIAL])
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in PLAIN])
    tokenizer.save(str(folder / "tokenizer.json"))
    facts = json.loads((folder / "tokenizer_config.json").read_text())
    facts |= {"bos_token": "<|begin_of_text|>", "eos_token": STOPS[name][0]}
    (folder / "tokenizer_config.json").write_text(json.dumps(facts))
    stops = [tokenizer.token_to_id(text) for text in STOPS[name]]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": stops}))
    config = json.loads((folder / "config.json").read_text())
    size = tokenizer.get_vocab_size()
    config |= {"eos_token_id": stops[0], "vocab_size": size, "max_position_embeddings": 4096}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def template_renderer(folder: Path, name: str) -> Renderer:
    return Renderer.load(template_model(folder, name))
