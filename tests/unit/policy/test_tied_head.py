"""What the engine's reload reads always holds an output head."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tests.fakes.tiny_model import make_tiny_model

from headrace_policy.tied_head import reloadable


def test_a_tied_head_is_written_out_beside_links_to_the_rest(tmp_path: Path):
    model = make_tiny_model(tmp_path / "model")
    # An index would keep the engine from the added file.
    (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {}}))
    weights = load_file(model / "model.safetensors")
    with reloadable(model, tmp_path / "scratch") as staged:
        files = sorted(path.name for path in staged.iterdir())
        assert "model.safetensors.index.json" not in files
        assert {"config.json", "tokenizer.json", "model.safetensors"} < set(files)
        head = load_file(staged / "tied-head.safetensors")
        assert list(head) == ["lm_head.weight"]
        assert np.array_equal(head["lm_head.weight"], weights["model.embed_tokens.weight"])
    assert list((tmp_path / "scratch").iterdir()) == []
    assert (model / "model.safetensors").is_file()


def test_a_head_of_its_own_is_left_as_it_is(tmp_path: Path):
    model = make_tiny_model(tmp_path / "model")
    weights = load_file(model / "model.safetensors")
    save_file(
        weights | {"lm_head.weight": weights["model.embed_tokens.weight"] * 2}, model / "model.safetensors"
    )
    with reloadable(model, tmp_path / "scratch") as staged:
        assert staged == model


def test_a_file_that_is_no_safetensors_is_an_error(tmp_path: Path):
    model = make_tiny_model(tmp_path / "model")
    (model / "model.safetensors").write_bytes(b"x" * 20)
    with pytest.raises(ValueError, match="no safetensors file"), reloadable(model, tmp_path / "scratch"):
        pass
