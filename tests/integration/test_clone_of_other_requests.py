"""A clone of a job whose request said more than its config."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.integration.running_api import RunningApi, api  # noqa: F401  (a fixture)

from headrace.errors import ConfigError

pytestmark = pytest.mark.integration

CHAT = '{"messages": [{"role": "user", "content": "2+2"}, {"role": "assistant", "content": "4"}]}\n'


def resolved(api: RunningApi, job_id: str) -> dict[str, Any]:  # noqa: F811
    return api.alice.job_config(job_id)["resolved"]


def beside_its_config(api: RunningApi) -> dict[str, Any]:  # noqa: F811
    """As the contract's clients send it: task app, model and trainer stand outside the config."""
    data = {
        "endpoint_base_url": "http://127.0.0.1:9", "base_model": api.model, "trainer": {"batch_size": 3},
        "config": {"rollout": {"max_turns": 7}, "no_such_section": {"x": 1}},
    }  # fmt: skip
    return {"job_type": "rl", "data": data, "compute": {"gpu_type": "A10G"}}


def test_what_stood_beside_the_config_is_cloned_with_it(api: RunningApi) -> None:  # noqa: F811
    first = api.alice.create_rl_job(beside_its_config(api))["job_id"]
    made = api.alice.clone_job(first)["job_id"]
    assert resolved(api, made) == resolved(api, first)
    changed = api.alice.clone_job(first, overrides={"training.learning_rate": 5e-6})["job_id"]
    wanted = resolved(api, first)
    wanted["training"]["learning_rate"] = 5e-6
    assert resolved(api, changed) == wanted
    again = api.alice.clone_job(changed)["job_id"]
    assert resolved(api, again) == wanted, "a clone of a clone"
    with pytest.raises(ConfigError, match="did you mean `learning_rate`"):
        api.alice.clone_job(first, overrides={"training.learning_rat": 1})


def test_a_config_that_says_it_all_is_cloned_as_it_came(api: RunningApi) -> None:  # noqa: F811
    payload = api.rl_payload()
    first = api.alice.create_rl_job(payload)["job_id"]
    made = api.alice.clone_job(first)["job_id"]
    assert api.alice.job_config(made)["submitted"] == payload["data"]["config"]


def test_an_sft_job_made_of_hyperparameters_is_cloned_with_its_files(api: RunningApi, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "train.jsonl").write_text(CHAT)
    file_id = api.alice.upload_file(tmp_path / "train.jsonl")["id"]
    payload = {"model": api.model, "training_file_id": file_id, "hyperparameters": {"n_epochs": 2}}
    first = api.alice.create_sft_job(payload)["job_id"]
    made = api.alice.clone_job(first, overrides={"hyperparameters.n_epochs": 5})
    assert (made["type"], made["iterations"], made["data"]) == ("sft", 5, {"training_file_id": file_id})
    with_config = {"config": {"job": {"model": "elsewhere"}}, "model": api.model, "training_file_id": file_id}
    other = api.alice.create_sft_job(with_config)["job_id"]
    assert api.alice.clone_job(other)["model"] == api.model, "the request's model won over the config's"


def test_a_model_that_was_allowed_once_is_allowed_in_a_clone(api: RunningApi) -> None:  # noqa: F811
    (api.settings.home / "models.toml").write_text(
        f'[models."odd"]\npath = "{api.model}"\nexperimental = true\n'
        f'[models."other"]\npath = "{api.model}"\nexperimental = true\n'
    )
    payload: dict[str, Any] = api.rl_payload() | {"allow_experimental": True}
    payload["data"]["config"]["model"]["base"] = "odd"
    first = api.alice.create_rl_job(payload)["job_id"]
    assert api.alice.clone_job(first, overrides={"rollout.max_turns": 3})["model"] == "odd"
    with pytest.raises(ConfigError, match="experimental"):
        api.alice.clone_job(first, overrides={"model.base": "other"})
