"""The renderer writes what transformers writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fakes.tiny_model import CHATML, CHATML_TOOLS, make_tiny_model

from headrace.errors import BadRequest, ConfigError
from headrace.render import Renderer

TOOLS = [
    {
        "type": "function",
        "function": {"name": "go", "description": "<b>é</b>", "parameters": {"type": "object"}},
    }
]
TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "hello"},
    {"role": "user", "content": "bye"},
]
CALLING = [
    {"role": "user", "content": "go north"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "1",
                "type": "function",
                "function": {"name": "go", "arguments": '{"to": "north", "n": 2}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "a wall"}]},
]


@pytest.fixture
def chatml(tmp_path: Path) -> Renderer:
    return Renderer.load(make_tiny_model(tmp_path, chat_template=CHATML))


@pytest.fixture
def with_tools(tmp_path: Path) -> Renderer:
    return Renderer.load(make_tiny_model(tmp_path, chat_template=CHATML_TOOLS))


def test_plain_chatml_is_written_to_the_letter(chatml: Renderer):
    assert chatml.render_text(TALK, None, True) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nhi<|im_end|>\n"
        "<|im_start|>assistant\nhello<|im_end|>\n"
        "<|im_start|>user\nbye<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_tools_and_tool_calls_are_written_to_the_letter(with_tools: Renderer):
    text = with_tools.render_text(CALLING, TOOLS, True)
    tool = (
        '{"type": "function", "function": {"name": "go", "description": "<b>é</b>", '
        '"parameters": {"type": "object"}}}'
    )
    assert text == (
        f"<|im_start|>system\n# Tools\n<tools>\n{tool}\n</tools>\n"
        'Answer with <tool_call>{"name": ..., "arguments": ...}</tool_call><|im_end|>\n'
        "<|im_start|>user\ngo north<|im_end|>\n"
        '<|im_start|>assistant\n<tool_call>\n{"name": "go", "arguments": {"to": "north", "n": 2}}\n'
        "</tool_call><|im_end|>\n"
        "<|im_start|>user\n<tool_response>\na wall\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_role_words_and_special_tokens_are_one_token_each(chatml: Renderer):
    ids = chatml.encode("<|im_start|>assistant\n")
    assert [chatml.decode([i]) for i in ids] == ["<|im_start|>", "assistant", "\n"]


def test_decode_gives_the_text_back_and_can_leave_special_tokens_out(chatml: Renderer):
    ids = chatml.encode("grüße<|im_end|>")
    assert chatml.decode(ids) == "grüße<|im_end|>"
    assert chatml.decode(ids, skip_special=True) == "grüße"


def test_both_stop_tokens_of_the_folder_are_known(chatml: Renderer):
    assert [chatml.decode([i]) for i in chatml.eos_ids] == ["<|im_end|>", "<|endoftext|>"]


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ bos_token if bos_token is defined }}{{ eos_token }}", "<|im_end|>"),
        ("{% if x is defined %}x{% endif %}{{ messages | tojson(indent=1) }}", None),
        (
            "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{{ m.role }}{% endfor %}",
            "user",
        ),
        ("a{% generation %}{{ messages[0].content }}{% endgeneration %}b", "ahib"),
        ("{% set x = 1 %}\n  {% if true %}\nline\n  {% endif %}\n", "line\n"),
        ("{{ strftime_now('%Y') | length }}", "4"),
    ],
)
def test_the_dialect_of_templates_is_the_one_of_transformers(
    tmp_path: Path, template: str, expected: str | None
):
    renderer = Renderer.load(make_tiny_model(tmp_path, chat_template=template))
    text = renderer.render_text([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "x"}])
    if expected is not None:
        assert text == expected


def test_a_template_that_refuses_gives_its_own_words(tmp_path: Path):
    template = "{{ raise_exception('roles must alternate') }}"
    renderer = Renderer.load(make_tiny_model(tmp_path, chat_template=template))
    with pytest.raises(BadRequest, match="roles must alternate"):
        renderer.render_text([{"role": "user", "content": "hi"}])


def test_a_template_cannot_reach_outside_its_sandbox(tmp_path: Path):
    template = "{{ messages.__class__.__mro__ }}"
    renderer = Renderer.load(make_tiny_model(tmp_path, chat_template=template))
    with pytest.raises(BadRequest):
        renderer.render_text([{"role": "user", "content": "hi"}])


@pytest.mark.parametrize("message", [{"tool_calls": 5}, {"tool_calls": [5]}, {"content": 5}])
def test_a_message_of_the_wrong_shape_is_a_bad_request(tmp_path: Path, message: dict):
    renderer = Renderer.load(make_tiny_model(tmp_path))
    with pytest.raises(BadRequest):
        renderer.render_text([{"role": "assistant", **message}])


def test_chat_template_jinja_wins_over_the_tokenizer_config(tmp_path: Path):
    folder = make_tiny_model(tmp_path)
    (folder / "chat_template.jinja").write_text("from the file")
    assert Renderer.load(folder).render_text([{"role": "user", "content": "hi"}]) == "from the file"


def test_a_folder_without_template_or_tokenizer_is_refused_with_the_fix(tmp_path: Path):
    folder = make_tiny_model(tmp_path)
    facts = json.loads((folder / "tokenizer_config.json").read_text())
    del facts["chat_template"]
    (folder / "tokenizer_config.json").write_text(json.dumps(facts))
    with pytest.raises(ConfigError, match=r"add chat_template\.jinja"):
        Renderer.load(folder)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match=r"no tokenizer\.json"):
        Renderer.load(folder)


@pytest.mark.parametrize(
    "content", [{"a": 1}, 7, [{"type": "image_url", "image_url": {"url": "x"}}]], ids=["dict", "int", "image"]
)
def test_content_that_is_not_text_is_refused(chatml: Renderer, content: object):
    with pytest.raises(BadRequest):
        chatml.render_text([{"role": "user", "content": content}])


def test_rendering_imports_neither_torch_nor_transformers():
    code = (
        "import sys, headrace.render, headrace.render.splice, headrace_policy.__main__\n"
        "assert not {'torch', 'transformers', 'vllm'} & set(sys.modules), sorted(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, env=os.environ)
    assert done.returncode == 0


@pytest.mark.slow
def test_text_and_tokens_equal_those_of_transformers(tmp_path: Path):
    transformers = pytest.importorskip("transformers")
    for name, template, messages, tools in (
        ("chatml", CHATML, TALK, None),
        ("tools", CHATML_TOOLS, TALK, TOOLS),
        ("calling", CHATML_TOOLS, CALLING, TOOLS),
    ):
        folder = make_tiny_model(tmp_path / name, chat_template=template)
        renderer, theirs = Renderer.load(folder), transformers.AutoTokenizer.from_pretrained(folder)
        plain = json.loads(json.dumps(messages))
        for message in plain:
            if isinstance(message["content"], list):
                message["content"] = message["content"][0]["text"]
            for call in message.get("tool_calls", []):
                call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        text = theirs.apply_chat_template(plain, tools=tools, add_generation_prompt=True, tokenize=False)
        assert renderer.render_text(messages, tools, True) == text
        assert renderer.encode(text) == theirs(text, add_special_tokens=False)["input_ids"]
