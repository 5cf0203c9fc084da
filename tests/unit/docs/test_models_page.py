"""models.md against the code: its table of keys, and its example as the server reads it."""

from __future__ import annotations

import re
from pathlib import Path

from headrace.settings import Settings
from headrace.store.model_table import KEYS, read_table

PAGE = Path(__file__).parents[3] / "docs/models.md"


def test_the_page_lists_every_key_of_models_toml():
    table = PAGE.read_text().partition("| key | meaning |")[2].partition("\n\n")[0]
    assert tuple(re.findall(r"^\| `(\w+)`", table, re.MULTILINE)) == KEYS


def test_the_example_is_read_as_it_stands(tmp_path: Path):
    [example] = re.findall(r"^```toml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "models.toml").write_text(example)
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates/qwen3-short.jinja").write_text("{{ messages }}")
    table = read_table(Settings.model_validate({"HEADRACE_HOME": tmp_path}))
    assert table["Qwen/Qwen3-0.6B"].reasoning_parser == "qwen3"
    assert table["Qwen/Qwen3-4B"].experimental
