"""Which tokens SFT trains: the assistant's, its stop token, nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fakes.tiny_model import CHATML_TOOLS, make_tiny_model

from headrace.errors import DataError
from headrace.render import Renderer, assistant_spans
from headrace.render.splice import Answered, next_prompt

KEEPS_ONLY_LAST = (
    "{% for m in messages %}{% if m.role == 'user' or loop.last %}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="module")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> Renderer:
    return Renderer.load(make_tiny_model(tmp_path_factory.mktemp("model"), chat_template=CHATML_TOOLS))


def said(renderer: Renderer, messages: list[dict[str, Any]], tools: Any = None) -> list[str]:
    """The runs of trained text."""
    conversation = assistant_spans(renderer, messages, tools)
    runs: list[list[int]] = [[]]
    for token, is_trained in zip(conversation.token_ids, conversation.mask, strict=True):
        if is_trained:
            runs[-1].append(token)
        elif runs[-1]:
            runs.append([])
    return [renderer.decode(run) for run in runs if run]


def test_each_reply_with_its_stop_token_is_trained_and_nothing_else(renderer: Renderer):
    messages = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "one"},
        {"role": "user", "content": "b"},
        {"role": "assistant", "content": "two"},
    ]
    assert said(renderer, messages) == ["one<|im_end|>", "two<|im_end|>"]
    conversation = assistant_spans(renderer, messages)
    assert conversation.token_ids == renderer.encode(renderer.render_text(messages))
    assert renderer.decode(conversation.token_ids[-1:]) == "\n"
    assert conversation.mask[-1] == 0


def test_tool_calls_are_trained_and_tool_replies_are_not(renderer: Renderer):
    messages = [
        {"role": "user", "content": "a"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"function": {"name": "go", "arguments": "{}"}}],
        },
        {"role": "tool", "content": "wall"},
        {"role": "assistant", "content": "done"},
    ]
    tools = [{"type": "function", "function": {"name": "go"}}]
    assert said(renderer, messages, tools) == [
        '<tool_call>\n{"name": "go", "arguments": {}}\n</tool_call><|im_end|>',
        "done<|im_end|>",
    ]


def test_a_conversation_without_a_reply_trains_nothing(renderer: Renderer):
    conversation = assistant_spans(renderer, [{"role": "user", "content": "a"}])
    assert sum(conversation.mask) == 0
    assert len(conversation.mask) == len(conversation.token_ids) > 0


def test_a_template_that_rewrites_history_is_refused_naming_the_message(tmp_path: Path):
    renderer = Renderer.load(make_tiny_model(tmp_path, chat_template=KEEPS_ONLY_LAST))
    single = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "one"}]
    assert said(renderer, single) == ["one<|im_end|>"]
    several = [*single, {"role": "user", "content": "b"}, {"role": "assistant", "content": "two"}]
    with pytest.raises(DataError, match=r"message 2: .*not prefix-stable"):
        assistant_spans(renderer, several)


texts = st.text(
    st.characters(max_codepoint=0x2FF, exclude_characters="<|>", exclude_categories=["Cs"]), max_size=9
)


@given(pairs=st.lists(st.tuples(texts, texts), min_size=1, max_size=4))
@settings(max_examples=100, deadline=None)
def test_sft_sees_the_tokens_that_the_gateway_would_have_made(
    renderer: Renderer, pairs: list[tuple[str, str]]
):
    messages: list[dict[str, Any]] = []
    calls: list[Answered] = []
    for index, (asked, answered) in enumerate(pairs):
        messages = [*messages, {"role": "user", "content": asked}]
        prompt = next_prompt(renderer, calls, messages, None)
        reply = {"role": "assistant", "content": answered}
        ids = [*prompt.token_ids, *renderer.encode(answered), renderer.eos_ids[0]]
        calls.append(Answered(index, messages, reply, None, ids, renderer.eos_ids[0]))
        messages = [*messages, reply]
    conversation = assistant_spans(renderer, messages)
    assert conversation.token_ids == [*calls[-1].token_ids, *renderer.encode("\n")]
