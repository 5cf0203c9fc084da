from __future__ import annotations

import sys

import pytest

from headrace.errors import BadRequest
from headrace_policy import parsers


def test_the_engines_own_names_are_found_without_importing_it() -> None:
    assert "hermes" in parsers.known_parsers("--tool-call-parser")
    assert "qwen3" in parsers.known_parsers("--reasoning-parser")
    assert "vllm" not in sys.modules


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--tool-call-parser", "hermes", "--reasoning-parser=qwen3"),
        ("--tool-call-parser", "mine", "--tool-parser-plugin", "mine.py"),
        ("--tool-call-parser", "wrong", "--tool-call-parser", "hermes"),
    ],
)
def test_what_the_engine_would_take_is_let_through(arguments: tuple[str, ...]) -> None:
    parsers.require_known(arguments)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--tool-call-parser", "hermess"), "tool_parser = 'hermess' .* did you mean 'hermes'"),
        (("--reasoning-parser=qwen33",), "reasoning_parser = 'qwen33' .* did you mean 'qwen3'"),
        (("--reasoning-parser", "zzz"), "reasoning_parser = 'zzz' .* it has .*qwen3"),
    ],
)
def test_an_unknown_parser_is_refused_by_name(arguments: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(BadRequest, match=sentence):
        parsers.require_known(arguments)


def test_an_engine_whose_names_cannot_be_read_decides_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsers, "find_spec", lambda name: None)
    parsers.known_parsers.cache_clear()
    try:
        parsers.require_known(("--tool-call-parser", "anything"))
    finally:
        parsers.known_parsers.cache_clear()
