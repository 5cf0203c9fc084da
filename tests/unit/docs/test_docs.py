"""Every example in the docs is run: TOML is loaded strictly, Python is executed, commands are parsed."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from headrace.config import reference
from headrace.config.load import infer_type, load
from headrace.contracts.dataset import check_chat_jsonl
from headrace.errors import DataError
from headrace_cli import reference as command_reference
from headrace_cli.main import cli

ROOT = Path(__file__).parents[3]
COMMANDS = ROOT / "docs" / "cli.md"
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
    if "import Client" in text:
        pytest.skip("needs an API: tests/integration/test_docs_of_the_client.py runs it")
    if "from openai import" in text:
        pytest.skip("needs an API: tests/integration/test_docs_of_inference.py runs it")
    names: dict = {}
    exec(compile(text, "docs", "exec"), names)
    assert names["app"].asgi is not None


@with_ids("sh")
def test_commands_exist_with_these_options(text: str):
    for line in text.splitlines():
        words = _first_command(line)
        if not words or words[0] != "headrace":
            assert not words or words[0] in ("make", "source", "export", "python")
            continue
        _parse(cli, words[1:])


def _first_command(line: str) -> list[str]:
    """The words of a line's command: of the inner one in `NAME=$(...)`, without pipes and redirections.

    >>> _first_command("JOB=$(headrace jobs list --json | python -c 'x') # newest")
    ['headrace', 'jobs', 'list', '--json']
    """
    inner = re.fullmatch(r"[A-Z]+=\$\((.*)\)", line.strip())
    words = shlex.split(inner[1] if inner else line, comments=True)
    ends = [index for index, word in enumerate(words) if word in ("|", ">")]
    return words[: ends[0]] if ends else words


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


def test_command_reference_is_that_of_the_commands():
    written = COMMANDS.read_text()
    assert written == command_reference.page(), "run `python -m headrace_cli.reference > docs/cli.md`"


@pytest.mark.parametrize(
    ("name", "command"), [pytest.param(*leaf, id=leaf[0]) for leaf in command_reference.leaves()]
)
def test_the_command_page_has_exactly_the_options_that_help_shows(name: str, command: click.Command):
    shown = CliRunner().invoke(command, ["--help"], prog_name=name).output
    assert "  Example" in shown, f"{name} --help has no example"
    lines = re.findall(r"^  (-.*?)(?:  .*)?$", shown, re.MULTILINE)
    section = re.search(rf"^#+ {name}\n(.*?)(?=^#|\Z)", COMMANDS.read_text(), re.MULTILINE | re.DOTALL)
    assert section is not None, f"docs/cli.md has no section {name}"
    told = re.findall(r"^\| `(-.*?)` \|", section[1], re.MULTILINE)
    told += re.findall(r"^Takes .*$", section[1], re.MULTILINE)
    assert _long_options(told) == _long_options(lines) - {"--help"}


def _long_options(texts: list[str]) -> set[str]:
    return {option for text in texts for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)}


def test_every_line_of_the_dataset_page_is_accepted_or_refused_as_it_says():
    page = (ROOT / "docs" / "datasets.md").read_text()
    [good] = [body for name, body in BLOCK.findall(page) if name == "json"]
    assert check_chat_jsonl(good.encode().splitlines(), "good.jsonl") == 2
    refused = re.findall(r"^\| `(.*)` \| (line 1: .*) \|$", page, re.MULTILINE)
    assert len(refused) >= 8
    for line, sentence in refused:
        with pytest.raises(DataError) as caught:
            check_chat_jsonl([line.encode()], "bad.jsonl")
        assert caught.value.details["problems"][0] == sentence


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_links_between_pages_lead_somewhere(page: Path):
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
