"""An episode stays one sequence of exactly the tokens that were given and sampled."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fakes.tiny_model import CHATML, CHATML_TOOLS, make_tiny_model

from headrace.render import Renderer
from headrace.render.splice import Answered, Prompt, Split, is_clean_seam, next_prompt

STRIPS_REASONING = """\
{%- set ns = namespace(last=0) %}
{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}
{%- for m in messages %}
{{- '<|im_start|>' + m.role + '\\n' }}
{%- if m.reasoning and loop.index0 > ns.last %}{{- '<think>' + m.reasoning + '</think>' }}{% endif %}
{{- m.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}"""
"""Like Qwen3's: reasoning of turns before the last user message is left out."""
NO_SPECIAL = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }};{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
"""Ends a turn with ordinary text."""
KEEPS_ONLY_LAST = (
    "{% for m in messages %}{% if m.role == 'user' or loop.last %}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEXT_END = (
    "{% for m in messages %}{% if m.role == 'assistant' %}{{ m.content }}{% else %}"
    "<|im_start|>{{ m.content }}<|im_end|>{% endif %}{% endfor %}{% if add_generation_prompt %}{% endif %}"
)
"""Does not mark the end of a reply at all."""


def renderer_of(folder: Path, template: str = CHATML) -> Renderer:
    return Renderer.load(make_tiny_model(folder, chat_template=template))


@pytest.fixture(scope="module")
def chatml(tmp_path_factory: pytest.TempPathFactory) -> Renderer:
    return renderer_of(tmp_path_factory.mktemp("chatml"))


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


def answer(
    renderer: Renderer,
    prompt: Prompt,
    messages: Sequence[dict[str, Any]],
    sampled: Sequence[int],
    *,
    index: int = 0,
    tools: Any = None,
    reply: dict[str, Any] | None = None,
) -> Answered:
    """What the gateway keeps of a call that sampled `sampled`."""
    stop = sampled[-1] if sampled and sampled[-1] in renderer.eos_ids else None
    spoken = sampled[:-1] if stop is not None else sampled
    text = renderer.decode(list(spoken), skip_special=True)
    ids = [*prompt.token_ids, *sampled]
    return Answered(index, list(messages), reply or assistant(text), tools, ids, stop)


def ask(
    renderer: Renderer, messages: Sequence[dict[str, Any]], sampled: str, **more: Any
) -> tuple[Answered, list[int]]:
    ids = [token for character in sampled.split("|") for token in renderer.encode(character)]
    if not more.pop("is_cut", False):
        ids.append(renderer.eos_ids[0])
    prompt = next_prompt(renderer, [], messages, more.get("tools"))
    return answer(renderer, prompt, messages, ids, **more), ids


def test_the_first_call_is_rendered_whole_and_has_no_reason(chatml: Renderer):
    prompt = next_prompt(chatml, [], [user("hi")], None)
    assert chatml.decode(prompt.token_ids) == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert prompt.parent is None
    assert prompt.split is None


def test_sampled_tokens_that_text_would_not_give_again_are_kept(chatml: Renderer):
    # "user" as four letters: the tokenizer would make one token of it.
    call, sampled = ask(chatml, [user("hi")], "u|s|e|r")
    assert len(sampled) == 5
    messages = [user("hi"), assistant("user"), user("go on")]
    prompt = next_prompt(chatml, [call], messages, None)
    assert prompt.parent == 0
    assert list(prompt.token_ids) == [*call.token_ids, *prompt.new_ids]
    assert prompt.token_ids[: len(call.token_ids)][-5:] == sampled
    assert list(prompt.new_messages) == [user("go on")]


def test_the_newline_after_the_stop_token_is_given_not_lost(chatml: Renderer):
    call, _ = ask(chatml, [user("hi")], "yes")
    prompt = next_prompt(chatml, [call], [user("hi"), assistant("yes"), user("b")], None)
    assert chatml.decode(prompt.new_ids) == "\n<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n"


def test_a_reply_that_was_cut_off_gets_the_templates_end_of_turn(chatml: Renderer):
    call, _ = ask(chatml, [user("hi")], "yes", is_cut=True)
    prompt = next_prompt(chatml, [call], [user("hi"), assistant("yes"), user("b")], None)
    assert chatml.decode(prompt.new_ids).startswith("<|im_end|>\n<|im_start|>user\n")


def test_a_sampled_stop_token_other_than_the_templates_stands_for_it(chatml: Renderer):
    messages = [user("hi")]
    ids = [*chatml.encode("yes"), chatml.eos_ids[1]]
    call = answer(chatml, next_prompt(chatml, [], messages, None), messages, ids)
    prompt = next_prompt(chatml, [call], [user("hi"), assistant("yes"), user("b")], None)
    assert "yes<|endoftext|>\n<|im_start|>user" in chatml.decode(prompt.token_ids)


@pytest.mark.parametrize("echoed", ["  yes\n", "yes", "yes "])
def test_outer_white_space_does_not_break_the_sequence(chatml: Renderer, echoed: str):
    call, _ = ask(chatml, [user("hi")], " yes ")
    prompt = next_prompt(chatml, [call], [user("hi "), assistant(echoed), user("b")], None)
    assert prompt.parent == 0
    assert list(prompt.token_ids[: len(call.token_ids)]) == list(call.token_ids)


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([user("hi"), assistant("no"), user("b")], Split.HISTORY_DIFFERS),
        ([user("ho"), assistant("yes"), user("b")], Split.HISTORY_DIFFERS),
        ([user("hi"), user("b")], Split.HISTORY_DIFFERS),
        ([user("b")], Split.HISTORY_DIFFERS),
        ([user("hi"), user("yes"), user("b")], Split.HISTORY_DIFFERS),
        ([{**user("hi"), "name": "eve"}, assistant("yes"), user("b")], Split.HISTORY_DIFFERS),
        ([user("hi"), assistant("yes", reasoning="none was given"), user("b")], None),
        ([user("hi"), assistant("yes", tool_calls=[]), user("b")], None),
        ([user("hi"), {"role": "assistant", "content": [{"type": "text", "text": "yes"}]}, user("b")], None),
        ([user("hi"), assistant("yes")], None),
    ],
)
def test_an_edited_history_starts_a_new_sequence(
    chatml: Renderer, messages: list[dict[str, Any]], reason: Split | None
):
    call, _ = ask(chatml, [user("hi")], "yes")
    prompt = next_prompt(chatml, [call], messages, None)
    assert prompt.split == reason
    assert (prompt.parent is None) == (reason is not None)
    if reason is not None:
        assert list(prompt.new_ids) == chatml.encode(chatml.render_text(messages, None, True))


def test_the_longest_earlier_call_is_continued_and_sub_agents_interleave(chatml: Renderer):
    main, side = [user("main")], [user("side")]
    first, _ = ask(chatml, main, "one")
    second, _ = ask(chatml, side, "two", index=1)
    longer = [*main, assistant("one"), user("more")]
    prompt = next_prompt(chatml, [first, second], longer, None)
    third = answer(chatml, prompt, longer, [*chatml.encode("three"), chatml.eos_ids[0]], index=2)
    again, _ = ask(chatml, main, "one", index=3)  # shorter than the third, though later
    calls = [first, second, third, again]
    assert next_prompt(chatml, calls, [*longer, assistant("three"), user("x")], None).parent == 2
    assert next_prompt(chatml, calls, [*side, assistant("two"), user("x")], None).parent == 1
    assert next_prompt(chatml, calls, [*main, assistant("one"), user("other")], None).parent == 3


def test_of_equal_calls_the_latest_is_continued(chatml: Renderer):
    calls = [ask(chatml, [user("hi")], "yes", index=index)[0] for index in (0, 1)]
    assert next_prompt(chatml, calls, [user("hi"), assistant("yes"), user("b")], None).parent == 1


def test_other_tools_start_a_new_sequence(tmp_path: Path):
    renderer = renderer_of(tmp_path, CHATML_TOOLS)
    tools = [{"type": "function", "function": {"name": "go"}}]
    call, _ = ask(renderer, [user("hi")], "yes", tools=tools)
    messages = [user("hi"), assistant("yes"), user("b")]
    assert next_prompt(renderer, [call], messages, tools).parent == 0
    read_back = dataclasses.replace(call, tools=tuple(tools))
    assert next_prompt(renderer, [read_back], messages, tools).parent == 0
    assert next_prompt(renderer, [call], messages, None).split is Split.TOOLS_CHANGED


@pytest.mark.parametrize(
    ("echoed", "is_equal"),
    [
        ([("go", '{"n": 2, "to": "north"}')], True),
        ([("go", '{"to":"north","n":2}')], True),
        ([("go", '{"to": "south", "n": 2}')], False),
        ([("run", '{"to": "north", "n": 2}')], False),
        ([], False),
    ],
)
def test_tool_calls_are_equal_by_name_and_parsed_arguments(
    tmp_path: Path, echoed: list[tuple[str, str]], is_equal: bool
):
    renderer = renderer_of(tmp_path, CHATML_TOOLS)

    def calls(pairs: list[tuple[str, str]]) -> list[dict[str, Any]]:
        return [{"id": "x", "type": "function", "function": {"name": n, "arguments": a}} for n, a in pairs]

    sampled = '<tool_call>\n{"name": "go", "arguments": {"to": "north", "n": 2}}\n</tool_call>'
    reply = {
        "role": "assistant",
        "content": None,
        "tool_calls": calls([("go", '{"to": "north", "n": 2}')]),
    }
    call, ids = ask(renderer, [user("hi")], sampled, reply=reply)
    tool = {"role": "tool", "tool_call_id": "x", "content": "wall"}
    messages = [user("hi"), {"role": "assistant", "content": "", "tool_calls": calls(echoed)}, tool]
    prompt = next_prompt(renderer, [call], messages, None)
    assert (prompt.parent == 0) == is_equal
    if is_equal:
        assert list(prompt.token_ids[len(call.token_ids) - len(ids) :][: len(ids)]) == ids
        assert renderer.decode(prompt.new_ids).count("wall") == 1


@pytest.mark.parametrize("reasoning", [{"reasoning": "hm"}, {}], ids=["echoed", "dropped"])
def test_a_template_that_strips_earlier_reasoning_does_not_split_an_exact_history(
    tmp_path: Path, reasoning: dict[str, str]
):
    renderer = renderer_of(tmp_path, STRIPS_REASONING)
    call, _ = ask(renderer, [user("hi")], "<think>hm</think>yes", reply=assistant("yes", reasoning="hm"))
    prompt = next_prompt(renderer, [call], [user("hi"), assistant("yes", **reasoning), user("b")], None)
    assert prompt.parent == 0
    assert "<think>hm</think>yes<|im_end|>\n<|im_start|>user\nb" in renderer.decode(prompt.token_ids)


def test_a_template_that_leaves_earlier_replies_out_starts_a_new_sequence(tmp_path: Path):
    renderer = renderer_of(tmp_path, KEEPS_ONLY_LAST)
    call, _ = ask(renderer, [user("hi")], "yes")
    prompt = next_prompt(renderer, [call], [user("hi"), assistant("yes"), user("b")], None)
    assert prompt.split is Split.TEMPLATE_NOT_PREFIX


def test_template_history_continues_only_where_its_own_tokens_do(tmp_path: Path):
    renderer = renderer_of(tmp_path, STRIPS_REASONING)
    thinking, _ = ask(renderer, [user("hi")], "<think>hm</think>yes", reply=assistant("yes", reasoning="hm"))
    plain, _ = ask(renderer, [user("hi")], "yes")
    split, _ = ask(renderer, [user("hi")], "y|e|s")
    apart, _ = ask(renderer, [user("hi")], "u|s|e|r")
    for call, text, parent in (
        (thinking, "yes", None),
        (plain, "yes", 0),
        (split, "yes", 0),
        (apart, "user", None),
    ):
        messages = [user("hi"), assistant(text), user("b")]
        prompt = next_prompt(renderer, [call], messages, None, "template")
        assert prompt.parent == parent
        assert prompt.split == (Split.TEMPLATE_HISTORY if parent is None else None)
        assert list(prompt.token_ids) == renderer.encode(renderer.render_text(messages, None, True))
        if parent is not None:
            assert [*call.token_ids, *prompt.new_ids] == list(prompt.token_ids)


def test_pieces_that_merge_across_the_seam_start_a_new_sequence(tmp_path: Path):
    renderer = renderer_of(tmp_path, NO_SPECIAL.replace(";", "r;"))
    # Cut off after "use": the template's own "r" behind it would become the token "user".
    call, _ = ask(renderer, [user("hi")], "use", is_cut=True)
    prompt = next_prompt(renderer, [call], [user("hi"), assistant("use"), user("b")], None)
    assert prompt.split is Split.SEAM_RETOKENISES
    clean, _ = ask(renderer, [user("hi")], "no", is_cut=True)
    assert next_prompt(renderer, [clean], [user("hi"), assistant("no"), user("b")], None).parent == 0


def test_a_template_without_an_end_of_turn_keeps_the_sampled_stop_token(tmp_path: Path):
    renderer = renderer_of(tmp_path, TEXT_END)
    call, _ = ask(renderer, [user("hi")], "yes")
    prompt = next_prompt(renderer, [call], [user("hi"), assistant("yes"), user("b")], None)
    assert renderer.decode(prompt.token_ids).endswith("yes<|im_end|><|im_start|>b<|im_end|>")


def test_the_seam_check_sees_a_merge(chatml: Renderer):
    assert not is_clean_seam(chatml, "us", "er")
    assert is_clean_seam(chatml, "us<|im_end|>", "er")


replies = st.text(st.characters(min_codepoint=1, max_codepoint=127), max_size=12)
turns = st.lists(st.tuples(replies, replies, st.booleans()), min_size=1, max_size=5)


@given(turns=turns)
@settings(max_examples=200, deadline=None)
def test_any_episode_is_one_sequence_of_what_was_sampled_and_given(
    chatml: Renderer, turns: list[tuple[str, str, bool]]
):
    messages: list[dict[str, Any]] = []
    calls: list[Answered] = []
    expected: list[int] = []
    for index, (asked, said, is_stopped) in enumerate(turns):
        messages = [*messages, user(asked)]
        prompt = next_prompt(chatml, calls, messages, None)
        assert prompt.parent == (index - 1 if index else None)
        assert prompt.split is None
        # One byte per token, so that text would often tokenise otherwise.
        sampled = [token for character in said for token in chatml.encode(character)]
        sampled += [chatml.eos_ids[0]] if is_stopped or not sampled else []
        expected += [*prompt.new_ids, *sampled]
        assert list(prompt.token_ids) == expected[: len(expected) - len(sampled)]
        call = answer(chatml, prompt, messages, sampled, index=index)
        calls.append(call)
        messages = [*messages, assistant(str(call.reply["content"]).strip())]
    assert list(calls[-1].token_ids) == expected
