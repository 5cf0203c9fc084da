"""Shell completion: the script is printed without a shell, and completes without loading the commands."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from headrace_cli.main import run


def completed(*words: str, current: str = "") -> list[str]:
    """What the script would be offered for the last word."""
    environ = os.environ | {
        "_HEADRACE_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(["headrace", *words, current]),
        "COMP_CWORD": str(len(words) + 1),
    }
    code = "import sys; sys.argv = ['headrace']; from headrace_cli.main import main; main()"
    ended = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    return [line.split(",", 1)[1] for line in ended.stdout.splitlines()]


def test_commands_sub_commands_and_options_are_completed():
    assert completed(current="comp") == ["completion"]
    assert completed("jobs", current="re") == ["resume", "rewards"]
    assert completed("jobs", "logs", current="--l") == ["--level"]
    assert completed("jobs", "logs", "--level", current="w") == ["warning"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script_that_asks_this_command(capsys, shell):
    assert run(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert f"_HEADRACE_COMPLETE={shell}_complete" in script


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_takes_the_script(capsys):
    run(["completion", "bash"])
    script = capsys.readouterr().out
    subprocess.run(
        ["bash", "-c", f"{script}\ncomplete -p headrace"], check=True, capture_output=True, timeout=20
    )


def test_an_unknown_shell_is_a_wrong_call(capsys):
    assert run(["completion", "tcsh"]) == 2
    assert "bash" in capsys.readouterr().err
