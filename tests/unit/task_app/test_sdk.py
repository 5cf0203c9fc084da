"""The SDK without a socket: addresses, requests, keys, datasets, loading, the scaffold."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from headrace import task_app
from headrace.config.load import infer_type, load, parse_toml
from headrace.errors import ConfigError, Conflict, DataError
from headrace.task_app import Action, Environment, SingleTurn, StepResult, TaskApp, ToolCall, scaffold, serve
from headrace.task_app.auth import is_loopback, offered_keys, shown, valid_keys
from headrace.task_app.policy_client import chat_url
from headrace.task_app.wire import RolloutRequest


@pytest.mark.parametrize(
    ("given", "called"),
    [
        ("http://h/v1", "http://h/v1/chat/completions"),
        ("http://h/v1/", "http://h/v1/chat/completions"),
        ("http://h", "http://h/v1/chat/completions"),
        (
            "http://h/rollout/trace_1/v1?cid=trace_1",
            "http://h/rollout/trace_1/v1/chat/completions?cid=trace_1",
        ),
        ("http://h/v1/chat/completions?cid=t", "http://h/v1/chat/completions?cid=t"),
    ],
)
def test_chat_completions_lie_under_the_inference_url_and_a_query_is_kept(given, called):
    assert chat_url(given) == called


def request(**changes) -> RolloutRequest:
    return RolloutRequest.model_validate({"run_id": "r", "ops": ["agent", "env"]} | changes)


def test_ops_come_under_several_names_and_as_objects():
    ops = ["policy", {"type": "environment"}, {"type": "model"}, "step"]
    assert request(ops=ops).ops == ["agent", "env", "agent", "env"]
    for bad in (["dance"], [{"kind": "agent"}], [1], []):
        with pytest.raises(ValidationError):
            request(ops=bad)


@pytest.mark.parametrize(
    ("config", "cid"),
    [
        ({"trace_correlation_id": "a", "trace": "b"}, "a"),
        ({"trace": "b", "inference_url": "http://h/v1?cid=c"}, "b"),
        ({"inference_url": "http://h/v1?cid=c"}, "c"),
        ({"inference_url": "http://h/v1"}, None),
        ({}, None),
    ],
)
def test_the_correlation_id_is_looked_for_in_the_contracts_order(config, cid):
    assert request(policy={"config": config}).correlation_id == cid


def test_keys_come_from_the_environment_with_aliases():
    assert valid_keys({"ENVIRONMENT_API_KEY": " a ", "ENVIRONMENT_API_KEY_ALIASES": "b,,c "}) == [
        "a",
        "b",
        "c",
    ]
    assert valid_keys({"dev_environment_api_key": "d"}) == ["d"]
    assert valid_keys({}) == []


def test_each_header_may_hold_several_keys():
    headers = {"x-api-key": "a,b", "x-api-keys": " c ", "authorization": "bearer d"}
    assert offered_keys(headers) == ["a", "b", "c", "d"]
    assert offered_keys({"authorization": "Basic d"}) == []


def test_at_most_half_of_a_key_is_shown():
    assert shown("abcdef") == "abc"
    assert shown("x" * 64) == "x" * 15


@pytest.mark.parametrize(("host", "own"), [("127.0.0.1", True), ("::1", True), ("localhost", True),
                                           ("0.0.0.0", False), ("10.0.0.1", False), (None, False)])  # fmt: skip
def test_loopback_is_told_apart(host, own):
    assert is_loopback(host) is own


def test_an_action_is_its_text_and_knows_its_tool_calls():
    action = Action(" up ", [ToolCall("1", "go", {}, "nonsense")], is_cut=True)
    assert action.strip() == "up"
    assert (action.is_cut, action.tool_calls[0].is_valid) == (True, False)
    assert ToolCall("1", "go", {}, "{}").is_valid
    assert Action("x").tool_calls == ()


@pytest.mark.parametrize(("rows", "said"), [([], "no rows"), ([{"answer": 1}], "row 0"),
                                            ([{"prompt": "x"}, {"messages": []}], "row 1")])  # fmt: skip
def test_a_dataset_with_a_bad_row_names_it(rows, said):
    with pytest.raises(DataError, match=said):
        SingleTurn(rows, lambda reply, row: 1.0)


def test_a_dataset_file_with_a_bad_line_names_it(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "x"}\n{"prompt": \n')
    with pytest.raises(DataError, match="line 2 is not JSON"):
        SingleTurn(path, lambda reply, row: 1.0)


def test_wrong_settings_of_an_app_are_refused_when_it_is_made():
    with pytest.raises(ConfigError, match="minimum comes first"):
        TaskApp(Environment, task_id="x", reward_range=(1, 0))
    with pytest.raises(ConfigError, match="split 'test' has no seeds"):
        TaskApp(Environment, task_id="x", splits={"train": [1], "test": []})
    with pytest.raises(ConfigError, match='neither "keys" nor "none"'):
        TaskApp(Environment, task_id="x", auth="open")  # type: ignore[arg-type]


def test_serving_is_refused_where_it_would_be_open_or_useless(monkeypatch):
    with pytest.raises(ConfigError, match="answers its own machine only"):
        serve(TaskApp(Environment, task_id="x", auth="none"), host="0.0.0.0")
    for name in ("ENVIRONMENT_API_KEY", "ENVIRONMENT_API_KEY_ALIASES", "DEV_ENVIRONMENT_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match="ENVIRONMENT_API_KEY is not set"):
        serve(TaskApp(Environment, task_id="x"))


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("no_such_module_xyz:app", "cannot import 'no_such_module_xyz'"),
        ("no/such/file.py:app", "does not exist"),
        ("{folder}/bad.py:app", "cannot load"),
        ("{folder}/good.py:other", "has no such name"),
        ("{folder}/good.py:number", "holds a int there"),
    ],
)
def test_a_target_that_is_no_task_app_says_what_is_wrong(tmp_path, target, said):
    (tmp_path / "bad.py").write_text("def (")
    (tmp_path / "good.py").write_text("number = 3\n")
    with pytest.raises(ConfigError, match=said):
        task_app.load(target.format(folder=tmp_path))


def test_the_scaffold_validates_strictly_and_never_overwrites(tmp_path: Path):
    written = scaffold.write(tmp_path / "new")
    assert sorted(path.name for path in written) == [
        ".env.example", "eval.toml", "rl.toml", "sft.jsonl", "sft.toml", "task_app.py",
    ]  # fmt: skip
    for name in ("rl", "sft", "eval"):
        raw = parse_toml((tmp_path / "new" / f"{name}.toml").read_text(), name)
        job_type = infer_type(raw)
        assert job_type == name
        load(raw, job_type, strict=True)
    (tmp_path / "new" / "eval.toml").unlink()
    (tmp_path / "new" / "rl.toml").write_text("mine")
    with pytest.raises(Conflict, match=r"rl\.toml"):
        scaffold.write(tmp_path / "new")
    assert (tmp_path / "new" / "rl.toml").read_text() == "mine"
    assert not (tmp_path / "new" / "eval.toml").exists()


def test_events_may_be_given_as_a_mapping():
    [event] = StepResult(events={"gold": 1.5}).event_list
    assert (event.key, event.value, event.type) == ("gold", 1.5, "sparse")


def test_importing_the_sdk_needs_no_web_framework():
    code = "import headrace.task_app, sys; print([m for m in ('fastapi', 'uvicorn', 'torch') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
