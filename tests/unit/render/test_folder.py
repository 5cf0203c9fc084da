"""Where the chat template of a model folder comes from, and what makes it unusable."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.conversations import GO, LOOK, user
from tests.fakes.tiny_model import make_tiny_model

from headrace.errors import BadRequest, ConfigError
from headrace.render import Renderer
from headrace.render.template import TemplateRefusal

HI = [user("hi")]
NAMED = [{"name": "tool_use", "template": "with tools"}, {"name": "default", "template": "plain"}]


def folder_with(path: Path, template: Any, **files: str) -> Path:
    """A model folder with this `chat_template` in its tokenizer's config, and files beside it."""
    folder = make_tiny_model(path)
    facts = json.loads((folder / "tokenizer_config.json").read_text())
    facts["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(facts))
    for name, text in files.items():
        file = folder / f"{name.replace('__', '/')}.jinja"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    return folder


@pytest.mark.parametrize(
    ("template", "files", "plain", "with_tools"),
    [
        ("one", {}, "one", "one"),
        (NAMED, {}, "plain", "with tools"),
        ([{"name": "chatml", "template": "only"}], {}, "only", "only"),
        ("one", {"chat_template": "file"}, "file", "file"),
        (NAMED, {"chat_template": "file"}, "file", "file"),
        (
            None,
            {"chat_template": "file", "additional_chat_templates__tool_use": "file with tools"},
            "file",
            "file with tools",
        ),
    ],
    ids=["text", "named", "one named", "file", "file over named", "files"],
)
def test_the_template_is_found_in_every_form_of_model_folder(
    tmp_path: Path, template: Any, files: dict[str, str], plain: str, with_tools: str
):
    renderer = Renderer.load(folder_with(tmp_path, template, **files))
    assert renderer.render_text(HI) == plain
    assert renderer.render_text(HI, [GO]) == with_tools


@pytest.mark.slow
@pytest.mark.parametrize(
    "files", [{}, {"chat_template": "f", "additional_chat_templates__tool_use": "ft"}], ids=str
)
def test_transformers_finds_the_same_template(tmp_path: Path, files: dict[str, str]):
    transformers = pytest.importorskip("transformers")
    folder = folder_with(tmp_path, NAMED, **files)
    renderer, theirs = Renderer.load(folder), transformers.AutoTokenizer.from_pretrained(folder)
    for tools in (None, [LOOK]):
        text = theirs.apply_chat_template(HI, tools=tools, tokenize=False)
        assert renderer.render_text(HI, tools) == text


@pytest.mark.parametrize(
    ("template", "complaint"),
    [
        (None, r"no chat template; add chat_template\.jinja"),
        ([], r"no chat template; add chat_template\.jinja"),
        ([NAMED[0], {"name": "rag", "template": "x"}], r"named rag, tool_use and none named default"),
        ([{"name": "default"}], "objects with a name and a template"),
        (5, "objects with a name and a template"),
        ("{% for m in messages %}\n{{ m.role }", "no valid Jinja, line 2"),
        ("{% if %}", "no valid Jinja, line 1"),
    ],
    ids=str,
)
def test_a_template_that_is_none_is_refused_when_the_model_is_loaded(
    tmp_path: Path, template: Any, complaint: str
):
    with pytest.raises(ConfigError, match=complaint):
        Renderer.load(folder_with(tmp_path, template))


@pytest.mark.parametrize(
    "template",
    [
        "{{ raise_exception('no') }}",
        "{{ missing.attribute }}",
        "{{ 'a' + messages[0].n }}",
        "{{ 1 // (messages | length - 1) }}",
        "{{ messages[0].content.index('z') }}",
        "{% for i in range(99999999) %}{% endfor %}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__ }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{{ strftime_now(5) }}",
        "{% include 'x' %}",
    ],
)
def test_whatever_a_template_does_wrong_is_a_bad_request_in_one_sentence(tmp_path: Path, template: str):
    renderer = Renderer.load(folder_with(tmp_path, template))
    with pytest.raises(TemplateRefusal, match="the model's chat template refuses these messages: ") as caught:
        renderer.render_text(HI)
    assert isinstance(caught.value, BadRequest)
    assert caught.value.status == 400


def test_variables_reach_the_template_and_never_stand_for_the_conversation(tmp_path: Path):
    renderer = Renderer.load(
        folder_with(tmp_path, "{{ eos_token }} {{ documents }} {{ mood }} {{ messages | length }}")
    )
    assert renderer.render_text(HI) == "<|im_end|> None  1"
    variables = {"eos_token": "E", "documents": [1], "mood": "m", "messages": []}
    assert renderer.render_text(HI, variables=variables) == "E [1] m 1"


def test_what_a_generation_block_sets_stays_in_it(tmp_path: Path):
    template = "{% set x = 1 %}{% generation %}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}"
    assert Renderer.load(folder_with(tmp_path, template)).render_text(HI) == "21"
