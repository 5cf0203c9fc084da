from __future__ import annotations

from pathlib import Path

from tests.fakes.tiny_model import make_tiny_model
from tokenizers import Tokenizer

from headrace_api.traces.decoding import token_texts


def test_the_texts_of_the_tokens_join_to_the_text(tmp_path: Path) -> None:
    path = make_tiny_model(tmp_path / "tiny") / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(path))
    ids = tokenizer.encode("user goes  up<|im_end|>").ids
    texts = token_texts(path, ids)
    assert "".join(texts) == "user goes  up<|im_end|>"
    assert texts[0] == "user"
    assert texts[-1] == "<|im_end|>", "special tokens show"


def test_without_a_tokenizer_texts_are_empty() -> None:
    assert token_texts(None, [1, 2]) == ["", ""]
