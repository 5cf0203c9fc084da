"""Token ids as text for people; nothing here is ever tokenised again."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from tokenizers import Tokenizer


def token_texts(tokenizer: Path | None, ids: list[int]) -> list[str]:
    """The text that each token adds behind the one before it; empty texts without a tokenizer.

    A token that holds part of a character shows as the replacement character.
    """
    if tokenizer is None:
        return [""] * len(ids)
    decode = _load(tokenizer, tokenizer.stat().st_mtime_ns)
    return [_piece(decode, ids[index - 1 : index], token) for index, token in enumerate(ids)]


def _piece(tokenizer: Tokenizer, before: list[int], token: int) -> str:
    # Some tokenizers drop a leading space from the first token that they decode.
    head = tokenizer.decode(before, skip_special_tokens=False) if before else ""
    both = tokenizer.decode([*before, token], skip_special_tokens=False)
    if head and both.startswith(head):
        return both[len(head) :]
    return tokenizer.decode([token], skip_special_tokens=False)


@lru_cache(maxsize=8)
def _load(path: Path, _changed_ns: int) -> Tokenizer:
    return Tokenizer.from_file(str(path))
