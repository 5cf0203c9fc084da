"""The tokenizer: any text round-trips, and turns cost the tokens that the recipes count on."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from examples import chatml
from examples.frozenlake import base_model as lake_model
from examples.frozenlake import demonstrations as lake
from examples.frozenlake import maps
from examples.walk import demonstrations as walk

WALK = chatml.build()
LAKE = chatml.build(lake_model.words())
RENDER = ImmutableSandboxedEnvironment().from_string(chatml.TEMPLATE).render


def tokens(tokenizer: Tokenizer, text: str) -> list[str]:
    return tokenizer.encode(text, add_special_tokens=False).tokens


@given(st.text())
def test_any_text_comes_back_from_its_tokens(text: str):
    for tokenizer in (WALK, LAKE):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        assert tokenizer.decode(ids, skip_special_tokens=False) == text


def test_what_no_word_covers_is_spelled_in_bytes():
    assert len(tokens(WALK, "漢")) == len("漢".encode())


def test_a_walk_reply_is_one_token_per_move():
    assert tokens(WALK, "RRUD") == ["R", "R", "U", "D"]


def test_a_walk_turn_is_fifteen_tokens_before_the_reply():
    opening = RENDER(messages=[{"role": "user", "content": "x+3 y-2"}], add_generation_prompt=True)
    assert len(tokens(WALK, opening)) == 15


def test_each_row_that_can_be_shown_is_one_token():
    for seed in range(200):
        rows, best, player = maps.map_of(seed), maps.shortest_moves(maps.map_of(seed)), (0, 0)
        while player != (3, 3):
            assert len(tokens(LAKE, "\n" + maps.draw(rows, player))) == 4
            player = maps.move(player, best[player])


def test_a_frozenlake_turn_is_fourteen_tokens():
    """Reply and end of turn (2), then line break, start, role, four rows, end, and the next prompt (12)."""
    messages = lake.conversations(1)[0]
    assert len(messages) >= 5
    shorter = RENDER(messages=messages[:2], add_generation_prompt=True)
    longer = RENDER(messages=messages[:4], add_generation_prompt=True)
    assert len(tokens(LAKE, longer)) - len(tokens(LAKE, shorter)) == 14


@pytest.mark.parametrize(("tokenizer", "conversations"), [(WALK, walk), (LAKE, lake)])
def test_a_longer_conversation_begins_with_the_exact_tokens_of_a_shorter_one(tokenizer, conversations):
    for messages in conversations.conversations(50):
        whole = tokenizer.encode(RENDER(messages=messages), add_special_tokens=False).ids
        for index, message in enumerate(messages):
            if message["role"] == "assistant":
                prompt = RENDER(messages=messages[:index], add_generation_prompt=True)
                ids = tokenizer.encode(prompt, add_special_tokens=False).ids
                assert whole[: len(ids)] == ids
                reply = tokenizer.encode(message["content"], add_special_tokens=False).ids
                assert whole[len(ids) : len(ids) + len(reply)] == reply


def test_the_saved_tokenizer_is_the_built_one(tmp_path: Path):
    chatml.save(tmp_path, lake_model.words())
    saved = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert saved.to_str() == LAKE.to_str()
