from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.unit.trainer.conftest import is_same, state_of
from transformers import AutoModelForCausalLM, AutoTokenizer

from headrace.errors import JobFailed
from headrace_trainer.model import load_policy, max_model_len, save_policy, vocab_size, weights_hash


def test_a_saved_policy_comes_back_bit_for_bit_with_its_tokenizer(
    fresh_model: Callable[[], Any], model_folder: Path, tmp_path: Path
) -> None:
    model = fresh_model()
    with torch.no_grad():
        model.model.embed_tokens.weight.add_(0.25)
    save_policy(model, model_folder, tmp_path / "saved")
    again = load_policy(tmp_path / "saved")
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "saved", dtype=torch.float32)
    assert is_same(state_of(model), state_of(again))
    assert is_same(state_of(model), state_of(plain))
    assert weights_hash(model) == weights_hash(again)
    assert again.lm_head.weight is again.model.embed_tokens.weight
    assert AutoTokenizer.from_pretrained(tmp_path / "saved").chat_template
    for name in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "saved" / name).read_bytes() == (model_folder / name).read_bytes()


def test_a_tied_head_is_written_once_and_an_untied_one_is_kept(model_folder: Path, tmp_path: Path) -> None:
    save_policy(load_policy(model_folder), model_folder, tmp_path / "tied")
    assert "lm_head.weight" not in load_file(tmp_path / "tied" / "model.safetensors")
    untied = tmp_path / "untied"
    shutil.copytree(model_folder, untied)
    edit_config(untied, tie_word_embeddings=False)
    weights = load_file(untied / "model.safetensors")
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"] * 2
    save_file(weights, untied / "model.safetensors", metadata={"format": "pt"})
    model = load_policy(untied)
    save_policy(model, untied, tmp_path / "again")
    again = load_policy(tmp_path / "again")
    assert torch.equal(again.lm_head.weight, 2 * again.model.embed_tokens.weight)


def test_the_hash_changes_with_one_bit_of_one_weight(fresh_model: Callable[[], Any]) -> None:
    model = fresh_model()
    before = weights_hash(model)
    assert before == weights_hash(fresh_model())
    with torch.no_grad():
        weight = model.model.layers[2].mlp.up_proj.weight
        weight[0, 0] = torch.nextafter(weight[0, 0], torch.tensor(9.0))
    assert weights_hash(model) != before


def test_a_policy_is_loaded_without_dropout_and_knows_its_limits(model_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(model_folder, tmp_path / "dropping")
    edit_config(folder, attention_dropout=0.5)
    model = load_policy(folder, gradient_checkpointing=True)
    assert model.training
    ids = torch.arange(20).unsqueeze(0)
    with torch.no_grad():
        assert torch.equal(model(ids).logits, load_policy(model_folder)(ids).logits)
    assert (max_model_len(model), vocab_size(model)) == (1024, 278)


def test_gradient_checkpointing_changes_no_gradient(model_folder: Path) -> None:
    gradients = []
    for is_on in (False, True):
        model = load_policy(model_folder, gradient_checkpointing=is_on)
        model(torch.arange(20).unsqueeze(0)).logits.logsumexp(-1).sum().backward()
        gradients.append({name: p.grad for name, p in model.named_parameters()})
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][name])


def test_weights_that_lack_a_tensor_are_refused_instead_of_drawn_at_random(
    model_folder: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(model_folder, tmp_path / "partial")
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(JobFailed, match=r"lack model\.layers\.1\.mlp\.up_proj\.weight"):
        load_policy(folder)


def test_a_folder_without_a_model_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(JobFailed, match="no model can be loaded"):
        load_policy(tmp_path)


def test_a_model_that_scales_its_logits_behind_the_head_is_refused(
    model_folder: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(model_folder, tmp_path / "capped")
    edit_config(folder, final_logit_softcapping=30.0)
    with pytest.raises(JobFailed, match="final_logit_softcapping"):
        load_policy(folder)


def edit_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
