"""Any conversation, under both families' templates: one sequence of what was given and sampled."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fakes.chat_templates import template_renderer
from tests.fakes.conversations import GO, LOOK, said, system, tool, user
from tests.fakes.episode import Episode

from headrace.render import Renderer
from headrace.render.splice import Split

TOOLS = [GO, LOOK]
texts = st.text(st.characters(codec="utf-8", exclude_characters="<|>"), max_size=8)
words = st.text('abc é😀{}"\\', max_size=8)
values = st.dictionaries(words, st.one_of(words, st.integers(-9, 9), st.booleans()), max_size=2)


@st.composite
def replies(draw: st.DrawFn, name: str) -> tuple[list[str], bool]:
    """What the policy samples, as pieces that are tokenised apart, and whether the limit cuts it."""
    pieces = []
    if draw(st.booleans()):
        pieces.append(f"<think>\n{draw(words)}\n</think>\n\n")
    if draw(st.booleans()):
        arguments = json.dumps(
            draw(values), separators=draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,", " :")]))
        )
        key = "arguments" if name == "qwen3" else "parameters"
        body = f'{{"name": "go", "{key}": {arguments}}}'
        pieces.append(f"<tool_call>\n{body}\n</tool_call>" if name == "qwen3" else body)
    else:
        pieces += list(draw(texts))
    is_cut = draw(st.booleans())
    if is_cut and pieces:
        pieces[-1] = pieces[-1][: draw(st.integers(0, len(pieces[-1])))]
    return pieces, is_cut


ECHOES = ("as it was", "trimmed", "without reasoning", "re-spaced")


def echoed(reply: dict[str, Any], how: str) -> dict[str, Any]:
    """The reply as agents send it back."""
    back = dict(reply)
    if how == "trimmed":
        back["content"] = (back["content"] or "").strip()
    if how == "without reasoning":
        back.pop("reasoning", None)
    if how == "re-spaced" and "tool_calls" in back:
        back["tool_calls"] = json.loads(json.dumps(back["tool_calls"]))
        for call in back["tool_calls"]:
            call["function"]["arguments"] = json.dumps(json.loads(call["function"]["arguments"]), indent=2)
    return back


@pytest.fixture(scope="module", params=["qwen3", "llama3"])
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Renderer]:
    name = request.param
    return name, template_renderer(tmp_path_factory.mktemp(name), name)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_an_unedited_conversation_is_one_sequence_whose_mask_is_what_was_sampled(
    family: tuple[str, Renderer], data: st.DataObject
):
    name, renderer = family
    episode = Episode(renderer)
    messages = [system(data.draw(texts)), user(data.draw(texts))]
    n_turns, expected, mask = data.draw(st.integers(1, 4)), [], []
    for turn in range(n_turns):
        pieces, is_cut = data.draw(replies(name))
        sampled = [token for piece in pieces for token in renderer.encode(piece)]
        reply = episode.ask(messages, sampled, tools=TOOLS, is_cut=is_cut)
        prompt = episode.prompt
        assert (prompt.parent, prompt.split) == (turn - 1 if turn else None, None)
        # The prompt is what the engine saw and said before, then text of the template's own.
        assert list(prompt.token_ids) == expected + list(prompt.new_ids)
        behind = renderer.prompt_text(messages, TOOLS, episode.answered[-1].options)
        assert behind.endswith(renderer.decode(prompt.new_ids).partition(renderer.end_of_turn)[2])
        given_back = list(episode.calls[-1].sampled_ids)
        expected += [*prompt.new_ids, *given_back]
        mask += [0] * len(prompt.new_ids) + [1] * len(given_back)
        back = echoed(reply, data.draw(st.sampled_from(ECHOES)))
        others = [tool(data.draw(texts))] if "tool_calls" in reply else [user(data.draw(texts))]
        messages = [*messages, back, *others]
    [row] = episode.rows()
    assert list(row.token_ids) == expected
    assert list(row.mask) == mask


@given(pairs=st.lists(st.tuples(texts, texts), min_size=1, max_size=4), with_tools=st.booleans())
@settings(max_examples=60, deadline=None)
def test_the_whole_reads_as_the_template_writes_it_where_nothing_is_edited_or_dropped(
    family: tuple[str, Renderer], pairs: list[tuple[str, str]], with_tools: bool
):
    _, renderer = family
    tools = TOOLS if with_tools else None
    episode, messages = Episode(renderer), [system("s")]
    for asked, answered in pairs:
        messages = [*messages, user(asked)]
        episode.ask(messages, answered.strip(), tools=tools)
        assert renderer.decode(episode.prompt.token_ids) == renderer.render_text(messages, tools, True)
        messages = [*messages, said(answered.strip())]


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_after_an_edit_only_the_calls_before_it_are_continued(
    family: tuple[str, Renderer], data: st.DataObject
):
    _, renderer = family
    episode, messages = Episode(renderer), [system("s"), user("a")]
    for turn in range(3):
        messages = [*messages, episode.ask(messages, f"r{turn}"), user(f"u{turn}")]
    position = data.draw(st.integers(0, len(messages) - 2))
    edited = {**messages[position], "content": "other"}
    changed = [*messages[:position], edited, *messages[position + 1 :]]
    episode.ask(changed, "x")
    before = [index for index in range(3) if 2 * index + 2 < position]  # calls with their replies
    assert episode.prompt.parent == (before[-1] if before else None)
    assert episode.prompt.split is (None if before else Split.HISTORY_DIFFERS)
    assert renderer.decode(episode.prompt.token_ids) == renderer.render_text(changed, None, True)
