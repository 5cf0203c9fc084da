"""Every failure is one sentence on stderr and the exit code of its kind."""

import click
import pytest

from headrace.errors import ConfigError, Conflict, DataError, HeadraceError, JobFailed, Unavailable
from headrace_cli.errors import Interrupted, TimedOut, exit_code
from headrace_cli.main import cli, run


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (HeadraceError("x"), 1),
        (Unavailable("x"), 1),
        (JobFailed("x"), 1),
        (Conflict("x"), 1),
        (ConfigError("x"), 2),
        (DataError("x"), 2),
        (TimedOut("x"), 3),
        (Interrupted("x"), 130),
    ],
)
def test_each_kind_of_error_has_its_exit_code(error, code):
    assert exit_code(error) == code


def test_an_unknown_command_is_a_wrong_call(capsys):
    assert run(["trian"]) == 2
    assert "No such command 'trian'" in capsys.readouterr().err


def test_a_missing_option_is_a_wrong_call_that_names_it(capsys):
    assert run(["train"]) == 2
    assert "--config" in capsys.readouterr().err


def test_no_api_is_one_sentence_that_says_how_to_get_one(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    monkeypatch.delenv("HEADRACE_API_URL", raising=False)
    assert run(["jobs", "list"]) == 1
    assert capsys.readouterr().err == (
        "error: no API to talk to: start one with `headrace up`, or give --backend URL (or HEADRACE_API_URL)\n"
    )


def test_a_wrong_backend_address_is_named(capsys):
    assert run(["jobs", "list", "--backend", "localhost:8760"]) == 2
    assert "backend = 'localhost:8760' is no address" in capsys.readouterr().err


def test_an_outside_api_without_a_key_says_which_variable_to_set(capsys, monkeypatch):
    for name in ("HEADRACE_API_KEY", "SYNTH_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    assert run(["jobs", "list", "--backend", "https://api.example.org"]) == 1
    assert "no API key for https://api.example.org: set HEADRACE_API_KEY" in capsys.readouterr().err


def test_several_problems_are_listed_one_a_line(capsys, tmp_path):
    config = tmp_path / "rl.toml"
    config.write_text('type = "rl"\n[services]\ntask_ulr = "http://x"\n[model]\nbase = "tiny"\n')
    assert run(["train", "--config", str(config)]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "error: 2 problems",
        f"  {config}: unknown key [services] task_ulr: did you mean `task_url`?",
        f"  {config}: missing key [services] task_url",
    ]


def test_every_command_has_a_help_text():
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        assert command.help, name
        for child in getattr(command, "commands", {}).values():
            assert child.help, f"{name} {child.name}"
