"""What tells two models apart that cannot swap weights in place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.fakes.tiny_model import CHATML_TOOLS, make_tiny_model

from headrace.artifacts.model_folder import architecture_hash, max_model_len
from headrace.errors import ConfigError


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_other_weights_and_other_formatting_are_the_same_architecture(tmp_path: Path):
    first = make_tiny_model(tmp_path / "a", seed=0)
    second = make_tiny_model(tmp_path / "b", seed=1)
    edit(second / "config.json", transformers_version="9", dtype="bfloat16")
    assert architecture_hash(first) == architecture_hash(second)
    # Saved anew by transformers, the template lies in a file of its own.
    facts = json.loads((second / "tokenizer_config.json").read_text())
    (second / "chat_template.jinja").write_text(facts["chat_template"])
    assert architecture_hash(first) == architecture_hash(second)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("config.json", {"hidden_size": 256}),
        ("config.json", {"rope_theta": 5.0}),
        ("generation_config.json", {"eos_token_id": 1}),
        ("tokenizer_config.json", {"chat_template": CHATML_TOOLS}),
        ("tokenizer.json", {"added_tokens": []}),
    ],
)
def test_another_shape_tokenizer_or_template_is_another_architecture(
    tmp_path: Path, name: str, changes: dict[str, object]
):
    folder = make_tiny_model(tmp_path)
    before = architecture_hash(folder)
    edit(folder / name, **changes)
    assert architecture_hash(folder) != before


def test_the_longest_sequence_is_read_also_from_a_nested_config(tmp_path: Path):
    folder = make_tiny_model(tmp_path)
    assert max_model_len(folder) == 1024
    (folder / "config.json").write_text('{"text_config": {"max_position_embeddings": 77}}')
    assert max_model_len(folder) == 77
    (folder / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="max_position_embeddings"):
        max_model_len(folder)


def test_a_folder_without_config_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"config\.json does not exist"):
        architecture_hash(tmp_path)
