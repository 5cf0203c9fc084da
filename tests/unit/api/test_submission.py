from __future__ import annotations

from typing import Any

import pytest

from headrace.config.rl import RLConfig
from headrace.config.sft import SFTConfig
from headrace.contracts.job import JobType
from headrace.errors import ConfigError
from headrace_api.jobs.submission import Submission, read


def rl(data: dict[str, Any], **top: Any) -> Submission:
    return read(JobType.RL, {"job_type": "rl", "data": data, **top})


def rl_config(submission: Submission) -> RLConfig:
    assert isinstance(submission.config, RLConfig)
    return submission.config


CONFIG = {"services": {"task_url": "http://config"}, "model": {"base": "config-model"}}


def test_the_requests_model_and_address_win_over_the_config() -> None:
    submission = rl({"config": CONFIG, "model": "ft:a:b", "endpoint_base_url": "http://request"})
    config = rl_config(submission)
    assert (config.model.source, config.model.base) == ("ft:a:b", None)
    assert config.services.task_url == "http://request"
    assert submission.submitted == CONFIG, "what came is kept as it came"


def test_a_flat_request_and_one_with_a_trainer_table_are_read() -> None:
    flat = read(JobType.RL, {"model": "m", "endpoint_base_url": "http://x", "trainer_id": "t"})
    assert rl_config(flat).model.start == "m"
    trainer = {"batch_size": 4, "group_size": 6}
    small = rl({"model": "m", "endpoint_base_url": "http://x", "trainer": trainer, "job_config_id": "c"})
    config = rl_config(small)
    assert (config.prompts_per_iteration, config.group_size) == (4, 6)
    assert small.notes[0].data == {"keys": ["job_config_id"]}


def test_toml_text_alone_is_enough() -> None:
    toml = 'services.task_url = "http://x"\nmodel.base = "m"\n'
    submission = rl({"config_toml": toml})
    assert (submission.model, submission.toml) == ("m", toml)


def test_an_unknown_key_is_an_error_only_where_strict() -> None:
    config = CONFIG | {"training": {"lerning_rate": 1}}
    with pytest.raises(ConfigError, match="did you mean `learning_rate`"):
        rl({"config": config}, strict=True)
    (note,) = rl({"config": config}).notes
    assert note.type == "rl.config.ignored"
    assert note.data == {"keys": ["[training] lerning_rate"]}


def test_every_problem_is_listed() -> None:
    with pytest.raises(ConfigError) as refusal:
        rl({"config": {"training": {"group_size": 1}, "foo": 1}}, strict=True)
    problems = refusal.value.details["problems"]
    assert isinstance(problems, list)
    assert len(problems) == 4, problems  # foo, group_size, services and model


def test_sections_without_effect_are_named() -> None:
    submission = rl({"config": CONFIG | {"judge": {"type": "x"}, "compute": {"nodes": 2}}})
    (note,) = submission.notes
    assert (note.type, note.data) == (
        "rl.config.not_used",
        {"keys": list(note.data["why"]), "why": note.data["why"]},
    )
    assert set(note.data["why"]) == {"[judge] type", "[compute] nodes"}


def test_what_changes_sampling_is_neutralised_for_other_clients() -> None:
    config = CONFIG | {"policy": {"top_p": 0.95, "temperature": 0, "top_k": 0, "max_tokens": 5}}
    submission = rl({"config": config})
    assert rl_config(submission).temperature == 1.0
    replaced = [note.data["key"] for note in submission.notes if note.type == "rl.config.replaced"]
    assert sorted(replaced) == ["[policy] temperature", "[policy] top_p"]
    with pytest.raises(ConfigError, match="top_p"):
        rl({"config": config}, strict=True)


@pytest.mark.parametrize(
    ("payload", "sentence"),
    [
        ({"job_type": "sft", "data": {}}, "job_type = 'sft' does not fit"),
        ({"data": []}, "data must be an object"),
        ({"data": {"config": []}}, "config must be an object"),
        ({"data": {"config_toml": "= 1"}}, "is not valid TOML"),
        ({"data": {"config": {"services": 1}, "endpoint_base_url": "u"}}, r"\[services\] must be a table"),
        ({"data": {"config": CONFIG}, "strict": "yes"}, "must be true or false"),
    ],
)
def test_a_malformed_request_is_one_sentence(payload: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        read(JobType.RL, payload)


def test_the_reference_clients_sft_request_becomes_a_config() -> None:
    payload = {
        "model": "Qwen/Qwen3-0.6B",
        "training_type": "sft_offline",
        "hyperparameters": {
            "n_epochs": 2, "per_device_batch": 2, "gradient_accumulation_steps": 2, "train_kind": "fft",
            "evaluation_strategy": "steps", "eval_steps": 5, "metric_for_best_model": "val.loss",
        },
        "metadata": {
            "effective_config": {
                "compute": {"gpu_type": "H100", "gpu_count": 1, "nodes": 1},
                "data": {"topology": {"container_count": 1}, "validation_files": ["file_v"]},
                "training": {"mode": "sft_offline", "use_qlora": False, "validation": {"enabled": True}},
            }
        },
        "training_file_id": "file_t",
    }  # fmt: skip
    submission = read(JobType.SFT, payload)
    config = submission.config
    assert isinstance(config, SFTConfig)
    assert (submission.model, config.conversations_per_step) == ("Qwen/Qwen3-0.6B", 4)
    assert config.training.validation is not None
    assert (config.training.validation.enabled, config.training.validation.eval_steps) == (True, 5)
    assert submission.data == {"training_file_id": "file_t", "validation_file_id": "file_v"}


def test_our_own_sft_request_keeps_its_config() -> None:
    config = {"job": {"model": "tiny", "data": "d.jsonl"}, "hyperparameters": {"max_steps": 3}}
    submission = read(
        JobType.SFT, {"config": config, "model": "tiny", "training_file_id": "f", "strict": True}
    )
    assert submission.submitted == config
    with pytest.raises(ConfigError, match="training_file_id"):
        read(JobType.SFT, {"config": config})
