"""From a config and the command line's options to the payload."""

from pathlib import Path

import pytest

from headrace.contracts.job import JobType
from headrace.errors import ConfigError
from headrace_cli.submission import Overrides, idempotency_key, payload, read

RL = """
[algorithm]
type = "online"
[services]
task_url = "http://127.0.0.1:1/"
[model]
base = "tiny"
trainer_mode = "full"
label = "mine"
[tags]
since = 2026-01-02
"""
SFT = """
[algorithm]
type = "offline"
[job]
model = "tiny"
data = "train.jsonl"
[data]
validation_path = "val.jsonl"
[hyperparameters]
n_epochs = 2
learning_rate = 1e-3
[training.validation]
eval_steps = 5
"""
EVAL = """
type = "eval"
[model]
source = "ft:tiny:1"
[evaluation_job]
task_url = "http://127.0.0.1:1"
seeds = [1, 2]
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "job.toml"
    path.write_text(text)
    return path


def test_an_rl_config_becomes_the_contracts_payload_with_its_text_beside_it(tmp_path):
    found = read(write(tmp_path, RL.replace("since = 2026-01-02", 'a = "b"')), Overrides(), {})
    body = payload(found, "http://api", None)
    assert (found.type, found.task_url) == (JobType.RL, "http://127.0.0.1:1/")
    assert body["job_type"] == "rl"
    assert body["strict"] is True
    assert body["data"]["endpoint_base_url"] == "http://127.0.0.1:1/"
    assert body["data"]["base_model"] == "tiny"
    assert "model" not in body["data"]
    assert body["data"]["config"]["services"] == {"task_url": "http://127.0.0.1:1/"}
    assert body["data"]["config_toml"].startswith("\n[algorithm]")
    assert body["metadata"] == {"backend_base_url": "http://api"}


def test_task_url_and_model_win_over_the_config_and_over_the_environment(tmp_path):
    path = write(tmp_path, RL)
    over = Overrides(task_url="http://flag", model="ft:tiny:9")
    body = payload(read(path, over, {"TASK_APP_URL": "http://variable"}), "", None)
    assert body["data"]["endpoint_base_url"] == "http://flag"
    assert body["data"]["model"] == "ft:tiny:9"
    assert body["data"]["config"]["model"] == {"trainer_mode": "full", "label": "mine", "source": "ft:tiny:9"}
    assert read(path, Overrides(), {"TASK_APP_URL": "http://variable"}).task_url == "http://variable"


def test_dates_travel_as_text(tmp_path):
    body = payload(read(write(tmp_path, RL), Overrides(), {}), "", None)
    assert body["data"]["config"]["tags"] == {"since": "2026-01-02"}


def test_an_sft_config_names_its_files_and_hyperparameters(tmp_path):
    found = read(write(tmp_path, SFT), Overrides(), {})
    assert found.datasets == (Path("train.jsonl"), Path("val.jsonl"))
    body = payload(found, "", ("file_1", "file_2"))
    assert body["training_file_id"] == "file_1"
    assert body["validation_file_id"] == "file_2"
    assert body["metadata"]["effective_config"]["data"]["validation_files"] == ["file_2"]
    assert body["hyperparameters"] == {"n_epochs": 2, "learning_rate": 0.001, "eval_steps": 5}
    assert body["config"]["job"]["model"] == "tiny"


def test_dataset_wins_over_the_configs_and_belongs_to_sft_only(tmp_path):
    over = Overrides(dataset=Path("other.jsonl"))
    assert read(write(tmp_path, SFT), over, {}).datasets[0] == Path("other.jsonl")
    with pytest.raises(ConfigError, match="--dataset is for SFT jobs"):
        read(write(tmp_path, RL), over, {})


def test_an_evaluation_config_is_sent_whole(tmp_path):
    body = payload(read(write(tmp_path, EVAL), Overrides(), {}), "", None)
    assert body["config"]["evaluation_job"]["seeds"] == [1, 2]
    assert body["strict"] is True


def test_a_config_that_does_not_say_its_type_is_refused_with_the_key_to_add(tmp_path):
    with pytest.raises(ConfigError, match=r'does not say what job it is: add type = "rl"'):
        read(write(tmp_path, '[model]\nbase = "tiny"\n'), Overrides(), {})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[model\n", "is not valid TOML"),
        (RL.replace("[tags]", "[tag]"), "unknown key tag: did you mean `tags`?"),
        (RL.replace("[model]", "[policy]\ntemperature = nan\n[model]"), "holds inf or nan"),
        (RL.replace('[services]\ntask_url = "http://127.0.0.1:1/"', ""), "missing key services"),
    ],
)
def test_wrong_configs_are_refused_by_a_sentence_that_names_the_file(tmp_path, text, sentence):
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        read(path, Overrides(), {})
    assert sentence in caught.value.message
    assert str(path) in caught.value.message


def test_a_config_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.toml cannot be read: No such file"):
        read(tmp_path / "none.toml", Overrides(), {})


def test_several_configs_under_one_idempotency_key_get_one_each():
    assert idempotency_key("K", {"a": 1}, 1) == "K"
    assert idempotency_key(None, {"a": 1}, 2) is None
    first, second = idempotency_key("K", {"a": 1}, 2), idempotency_key("K", {"a": 2}, 2)
    assert first != second
    assert first is not None
    assert first.startswith("K-")
    assert len(first) == len("K-") + 8
