"""`headrace config` checks files without a server, explains keys and prints schemas."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace_cli.main import run

GOOD = 'type = "rl"\n[services]\ntask_url = "http://127.0.0.1:9"\n[model]\nbase = "tiny"\n'


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def checked(capsys, *arguments: str) -> tuple[int, list[dict]]:
    code = run(["config", "check", *arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_a_valid_file_ends_with_zero_and_its_kind(capsys):
    Path("rl.toml").write_text(GOOD)
    assert run(["config", "check", "rl.toml"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "rl.toml: rl config, valid"


def test_every_problem_of_every_file_is_listed_and_ends_with_two(capsys):
    Path("rl.toml").write_text(GOOD)
    Path("bad.toml").write_text(
        'type = "rl"\n[services]\ntask_ulr = "http://x"\n[training]\ngroup_size = 0\n'
    )
    code, reports = checked(capsys, "rl.toml", "bad.toml")
    assert code == 2
    assert [len(report["problems"]) > 0 for report in reports] == [False, True]
    problems = reports[1]["problems"]
    assert "unknown key [services] task_ulr: did you mean `task_url`?" in problems
    assert len(problems) >= 3
    assert run(["config", "check", "bad.toml"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines()[0] == f"bad.toml: rl config, {len(problems)} problems"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[model]\nbase = 'tiny'\n", "it does not say what job it is"),
        ("[model\n", "bad.toml is not valid TOML"),
        ("\xff", "it is not UTF-8 text"),
        (None, "it cannot be read: No such file or directory"),
    ],
)
def test_a_file_of_no_kind_or_no_toml_is_named(capsys, text, sentence):
    if text is not None:
        Path("bad.toml").write_bytes(text.encode("latin-1"))
    code, [report] = checked(capsys, "bad.toml")
    assert (code, report["type"]) == (2, None)
    [problem] = report["problems"]
    assert sentence in problem


def test_the_kind_can_be_given(capsys):
    Path("rl.toml").write_text(GOOD.replace('type = "rl"\n', ""))
    code, [report] = checked(capsys, "rl.toml", "--type", "sft")
    assert (code, report["type"]) == (2, "sft")


def test_keys_without_effect_are_warnings(capsys):
    Path("rl.toml").write_text(GOOD + "[judge]\ntimeout_s = 5\n")
    code, [report] = checked(capsys, "rl.toml")
    assert code == 0
    assert any("judge" in warning for warning in report["warnings"])


def test_a_key_is_explained_and_an_unknown_one_is_refused_with_the_nearest(capsys):
    assert run(["config", "explain", "training.learning_rate"]) == 0
    assert "learning_rate" in capsys.readouterr().out
    assert run(["config", "explain", "training.learning_rat"]) == 2
    assert "learning_rate" in capsys.readouterr().err


@pytest.mark.parametrize("job_type", ["rl", "sft", "eval"])
def test_the_schema_is_json_with_the_sections_of_the_kind(capsys, job_type):
    assert run(["config", "schema", "--type", job_type]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert ("evaluation_job" in schema["properties"]) == (job_type == "eval")
    assert ("hyperparameters" in schema["properties"]) == (job_type == "sft")
