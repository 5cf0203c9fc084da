"""Variables from the shell and from env files."""

import pytest

from headrace.errors import ConfigError
from headrace_cli.envfiles import environment_keys, merged, parse


def test_lines_may_have_export_quotes_comments_and_equals_signs_in_the_value():
    text = "# keys\nexport A=1\nB = 'x y'\nC=\"q\"\nD=a=b\n\nE='"
    assert parse(text, ".env") == {"A": "1", "B": "x y", "C": "q", "D": "a=b", "E": "'"}


def test_a_line_that_is_no_assignment_is_named_by_number_and_not_shown():
    with pytest.raises(ConfigError) as caught:
        parse("A=1\nsk-secret-value", "keys.env")
    assert caught.value.message == "keys.env line 2 is not KEY=VALUE"


def test_later_files_win_over_earlier_ones_and_the_shell_over_both(tmp_path):
    first, second = tmp_path / "1.env", tmp_path / "2.env"
    first.write_text("A=first\nB=first\nC=first")
    second.write_text("B=second\nC=second")
    assert merged([first, second], {"C": "shell"}) == {"A": "first", "B": "second", "C": "shell"}


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"--env-file .*none\.env cannot be read: No such file"):
        merged([tmp_path / "none.env"], {})


def test_the_primary_key_comes_first_and_aliases_follow_once():
    environ = {"ENVIRONMENT_API_KEY": "a", "ENVIRONMENT_API_KEY_ALIASES": "b,a, c,"}
    assert environment_keys(environ) == ["a", "b", "c"]
    assert environment_keys({"DEV_ENVIRONMENT_API_KEY": "d"}) == ["d"]
    assert environment_keys({}) == []
