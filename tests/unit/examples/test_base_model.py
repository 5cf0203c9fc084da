"""The base model: what transformers and the engine load."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples import chatml
from examples.frozenlake import base_model as lake_model
from examples.walk import base_model as walk_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("walk")
    assert 620_000 < walk_model.make(folder) < 660_000
    return folder


def test_transformers_loads_model_tokenizer_and_template(folder: Path):
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": "x+3 y-2"}], add_generation_prompt=True, return_dict=False
    )
    assert ids == chatml.build().encode("<|im_start|>user\nx+3 y-2<|im_end|>\n<|im_start|>assistant\n").ids
    assert model.config.vocab_size == len(tokenizer)
    assert model.config.tie_word_embeddings
    end = tokenizer.convert_tokens_to_ids(chatml.TURN_END)
    assert tokenizer.eos_token_id == model.config.eos_token_id == end
    assert GenerationConfig.from_pretrained(folder).eos_token_id == end


def test_the_same_seed_makes_the_same_weights(folder: Path, tmp_path: Path):
    weights = (folder / "model.safetensors").read_bytes()
    walk_model.make(tmp_path / "same")
    walk_model.make(tmp_path / "other", seed=1)
    assert (tmp_path / "same" / "model.safetensors").read_bytes() == weights
    assert (tmp_path / "other" / "model.safetensors").read_bytes() != weights


def test_the_frozenlake_vocabulary_has_each_row_once():
    rows = lake_model.rows()
    assert len(rows) == len(set(rows)) == 88
