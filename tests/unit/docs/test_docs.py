"""Every example in the docs is run: TOML is loaded strictly, Python is executed, commands are parsed."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest

from headrace.config import reference
from headrace.config.load import infer_type, load
from headrace_cli.main import cli

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[tuple[str, str]]:
    return [
        (f"{page.name}:{number}", body)
        for page in PAGES
        for number, (name, body) in enumerate(BLOCK.findall(page.read_text()))
        if name == language
    ]


def with_ids(language: str):
    found = blocks(language)
    return pytest.mark.parametrize("text", [body for _, body in found], ids=[name for name, _ in found])


@with_ids("toml")
def test_toml_examples_are_valid(text: str):
    raw = tomllib.loads(text)
    if "models" in raw:  # models.toml
        assert all(entry["path"] for entry in raw["models"].values())
        return
    job_type = infer_type(raw)
    assert job_type is not None
    load(raw, job_type, strict=True)


@with_ids("python")
def test_python_examples_run_and_make_an_app(text: str):
    if "LossTokens" in text:
        pytest.skip("no app: tests/unit/trainer/test_losses.py runs it")
    names: dict = {}
    exec(compile(text, "docs", "exec"), names)
    assert names["app"].asgi is not None


@with_ids("sh")
def test_commands_exist_with_these_options(text: str):
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        if not words or words[0] != "headrace":
            assert not words or words[0] in ("make", "source", "export")
            continue
        _parse(cli, words[1:])


def _parse(command: click.Command, words: list[str]) -> None:
    """Parse as the command line would, without running anything or requiring files to exist."""
    context = click.Context(command, info_name=command.name)
    if isinstance(command, click.Group):
        found = command.get_command(context, words[0])
        assert found is not None, f"no command {words[0]!r}"
        _parse(found, words[1:])
        return
    parser = command.make_parser(context)
    _, left, _ = parser.parse_args(args=list(words))
    assert not left, f"{command.name} does not take {left}"


def test_config_reference_is_that_of_the_code():
    written = (ROOT / "docs" / "config.md").read_text()
    assert written == reference.page(), "run `python -m headrace.config.reference > docs/config.md`"


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_links_between_pages_lead_somewhere(page: Path):
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
