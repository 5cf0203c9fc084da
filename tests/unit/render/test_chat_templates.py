"""The splice and the spans of SFT under the templates of Qwen3 and Llama 3, tools and thinking included."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.fakes.chat_templates import template_renderer
from tests.fakes.conversations import GO, LOOK, called, said, system, tool, user
from tests.fakes.episode import Episode

from headrace.errors import BadRequest, DataError
from headrace.render import Renderer, assistant_spans
from headrace.render.options import PromptOptions
from headrace.render.splice import Split
from headrace.render.template import TemplateRefusal

HI = user("hi")
THOUGHT = "<think>\nhm\n</think>\n\n"
NO_THINKING = PromptOptions({"enable_thinking": False})
CALLS = {
    "qwen3": '<tool_call>\n{"name":"go",  "arguments":{"to":"north","n":2}}\n</tool_call>',
    "llama3": '{"name":"go", "parameters":{"to":"north","n":2}}',
}
"""A tool call with other white space than the template writes."""
BOTH = pytest.mark.parametrize("name", ["qwen3", "llama3"])


@pytest.fixture(scope="module")
def renderers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Renderer]:
    folder = tmp_path_factory.mktemp("models")
    return {name: template_renderer(folder / name, name) for name in ("qwen3", "llama3", "parts")}


def next_turn(name: str, text: str) -> str:
    """What comes between a stop token and the next reply when the user says `text`."""
    if name == "llama3":
        headers = "<|start_header_id|>{}<|end_header_id|>\n\n"
        return headers.format("user") + text + "<|eot_id|>" + headers.format("assistant")
    return f"\n<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"


def new_text(episode: Episode) -> str:
    return episode.renderer.decode(episode.prompt.new_ids)


@BOTH
@pytest.mark.parametrize("echoed", ["yes", "  yes\n", "yes "])
def test_a_reply_that_comes_back_trimmed_is_taken_over_as_it_was_sampled(
    renderers: dict[str, Renderer], name: str, echoed: str
):
    episode = Episode(renderers[name])
    episode.ask([HI], " yes  ")
    episode.ask([HI, said(echoed), user("b")], "x")
    assert (episode.prompt.parent, episode.prompt.split) == (0, None)
    assert new_text(episode) == next_turn(name, "b")
    assert f" yes  {renderers[name].token_text(renderers[name].eos_ids[0])}" in episode.prompt_text()


@BOTH
def test_a_tool_call_comes_back_spaced_otherwise_and_stays_as_it_was_sampled(
    renderers: dict[str, Renderer], name: str
):
    episode = Episode(renderers[name])
    reply = episode.ask([HI], CALLS[name], tools=[GO])
    assert reply["tool_calls"][0]["function"]["name"] == "go"
    echoed = called(("go", '{ "n": 2, "to": "north" }'))
    episode.ask([HI, echoed, tool("a wall")], "x", tools=[GO])
    assert (episode.prompt.parent, episode.prompt.split) == (0, None)
    assert CALLS[name] in episode.prompt_text()
    assert new_text(episode).count("a wall") == 1
    assert "north" not in new_text(episode)


@BOTH
@pytest.mark.parametrize("cut", ["ye", '{"name": "go", "argu', "<think>\nh", "<tool_call>\n{"])
def test_a_reply_cut_by_the_limit_gets_the_end_of_turn(renderers: dict[str, Renderer], name: str, cut: str):
    episode = Episode(renderers[name])
    reply = episode.ask([HI], cut, is_cut=True, tools=[GO])
    assert "tool_calls" not in reply
    episode.ask([HI, reply, user("b")], "x", tools=[GO])
    end = renderers[name].token_text(renderers[name].eos_ids[0])
    assert (episode.prompt.parent, episode.prompt.split) == (0, None)
    assert new_text(episode) == end + next_turn(name, "b")
    [row] = episode.rows()
    assert bytes(row.mask).count(1) == sum(len(call.sampled_ids) for call in episode.calls)


@pytest.mark.parametrize("is_echoed", [True, False], ids=["echoed", "dropped"])
def test_thinking_stays_in_one_sequence_although_qwen3_strips_it(
    renderers: dict[str, Renderer], is_echoed: bool
):
    episode, messages = Episode(renderers["qwen3"]), [HI]
    for turn in range(3):
        reply = episode.ask(messages, f"{THOUGHT}yes {turn}")
        assert reply["reasoning"] == "hm"
        back = reply if is_echoed else said(reply["content"])
        messages = [*messages, back, user(f"b{turn}")]
    assert [prompt.parent for prompt in episode.prompts] == [None, 0, 1]
    assert episode.prompt_text() == (
        f"<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n{THOUGHT}yes 0<|im_end|>"
        f"{next_turn('qwen3', 'b0')}{THOUGHT}yes 1<|im_end|>{next_turn('qwen3', 'b1')}"
    )
    [row] = episode.rows()
    assert len(row) == len(episode.answered[-1].token_ids)


def test_thinking_in_the_text_of_an_engine_without_a_parser_stays_too(renderers: dict[str, Renderer]):
    episode = Episode(renderers["qwen3"])
    reply = episode.ask([HI], f"{THOUGHT}yes", reply=said(f"{THOUGHT}yes"))
    episode.ask([HI, reply, user("b")], "x")
    assert (episode.prompt.parent, new_text(episode)) == (0, next_turn("qwen3", "b"))


def test_the_templates_own_history_drops_thinking_in_a_new_sequence_and_says_so(
    renderers: dict[str, Renderer],
):
    episode = Episode(renderers["qwen3"], "template")
    reply = episode.ask([HI], f"{THOUGHT}yes")
    messages = [HI, reply, user("b")]
    episode.ask(messages, "x")
    assert (episode.prompt.parent, episode.prompt.split) == (None, Split.TEMPLATE_HISTORY)
    assert "hm" not in episode.prompt_text()
    assert episode.prompt_text() == renderers["qwen3"].render_text(messages, None, True)
    assert len(episode.rows()) == 2


def test_the_templates_own_history_goes_on_within_a_turn_where_thinking_is_kept(
    renderers: dict[str, Renderer],
):
    episode = Episode(renderers["qwen3"], "template")
    call = '<tool_call>\n{"name": "go", "arguments": {"to": "north"}}\n</tool_call>'
    reply = episode.ask([HI], THOUGHT + call, tools=[GO])
    episode.ask([HI, reply, tool("w")], "x", tools=[GO])
    assert (episode.prompt.parent, episode.prompt.split) == (0, None)


@BOTH
def test_sub_agents_interleave_in_sequences_of_their_own(renderers: dict[str, Renderer], name: str):
    episode = Episode(renderers[name])
    main, side = [system("main"), HI], [system("side"), HI]
    for turn in range(3):
        main = [*main, episode.ask(main, f"m{turn}", tools=[GO]), user("more")]
        side = [*side, episode.ask(side, f"s{turn}"), user("more")]
    assert [prompt.parent for prompt in episode.prompts] == [None, None, 0, 1, 2, 3]
    assert len(episode.rows()) == 2


@BOTH
def test_a_changed_system_message_or_other_tools_start_a_new_sequence(
    renderers: dict[str, Renderer], name: str
):
    episode = Episode(renderers[name])
    episode.ask([system("s"), HI], "yes", tools=[GO])
    episode.ask([system("t"), HI, said("yes"), user("b")], "x", tools=[GO])
    assert episode.prompt.split is Split.HISTORY_DIFFERS
    episode.ask([system("s"), HI, said("yes"), user("b")], "x", tools=[GO, LOOK])
    assert episode.prompt.split is Split.TOOLS_CHANGED
    episode.ask([system("s"), HI, said("yes"), system("later"), user("b")], "x", tools=[GO])
    assert (episode.prompt.parent, episode.prompt.split) == (0, None)


def test_parallel_tool_calls_and_their_results_are_one_sequence(renderers: dict[str, Renderer]):
    episode = Episode(renderers["qwen3"])
    calls = [f'<tool_call>{{"name": "{name}", "arguments": {{}}}}</tool_call>' for name in ("go", "look")]
    sampled = "sure\n" + "".join(calls)
    reply = episode.ask([HI], sampled, tools=[GO, LOOK])
    assert (reply["content"], len(reply["tool_calls"])) == ("sure", 2)
    episode.ask([HI, reply, tool("w"), tool("v", 1)], "x", tools=[GO, LOOK])
    assert (episode.prompt.parent, episode.prompt.split) == (0, None)
    assert new_text(episode) == (
        "\n<|im_start|>user\n<tool_response>\nw\n</tool_response>\n<tool_response>\nv\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_a_template_for_single_calls_refuses_two_in_its_own_words(renderers: dict[str, Renderer]):
    with pytest.raises(TemplateRefusal, match="only supports single tool-calls at once"):
        renderers["llama3"].render_text([HI, called(("go", {}), ("look", {}))], [GO])


@BOTH
@pytest.mark.parametrize("content", [None, "", [], [{"type": "text", "text": ""}]], ids=str)
def test_no_text_is_the_same_in_all_its_forms(renderers: dict[str, Renderer], name: str, content: Any):
    episode = Episode(renderers[name])
    reply = episode.ask([HI], "")
    assert reply["content"] == ""
    episode.ask([HI, said(content), user("b")], "x")
    assert (episode.prompt.parent, new_text(episode)) == (0, next_turn(name, "b"))


def test_parts_are_lines_or_are_given_to_the_template_that_goes_through_them(renderers: dict[str, Renderer]):
    messages = [user([{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}])]
    assert "user\na\nb<|im_end|>" in renderers["qwen3"].render_text(messages)
    assert "user\nab<|im_end|>" in renderers["parts"].render_text(messages)


def test_thinking_switched_off_between_turns_opens_the_next_reply_otherwise(renderers: dict[str, Renderer]):
    episode = Episode(renderers["qwen3"])
    episode.ask([HI], f"{THOUGHT}yes")
    episode.ask([HI, said("yes"), user("b")], "x", options=NO_THINKING)
    assert (episode.prompt.parent, episode.prompt.split) == (0, None)
    assert new_text(episode) == next_turn("qwen3", "b") + "<think>\n\n</think>\n\n"


def test_settings_that_make_other_earlier_text_start_a_new_sequence(renderers: dict[str, Renderer]):
    episode = Episode(renderers["llama3"])
    episode.ask([HI], "yes", options=PromptOptions({"date_string": "1 Jan 2030"}))
    messages = [HI, said("yes"), user("b")]
    episode.ask(messages, "x", options=PromptOptions({"date_string": "1 Jan 2030"}))
    assert episode.prompt.parent == 0
    episode.ask(messages, "x", options=PromptOptions({"date_string": "2 Jan 2030"}))
    assert episode.prompt.split is Split.TEMPLATE_SETTINGS_CHANGED


def test_going_on_with_the_last_reply_is_a_new_sequence_without_an_end_of_turn(
    renderers: dict[str, Renderer],
):
    episode = Episode(renderers["llama3"])
    options = PromptOptions(add_generation_prompt=False, continue_final_message=True)
    reply = episode.ask([HI], "I th", is_cut=True)
    episode.ask([HI, reply], "ink", options=options)
    assert episode.prompt.split is Split.CONTINUES_REPLY
    assert episode.prompt_text().endswith("\n\nI th")


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ({"chat_template_kwargs": 5}, "must be an object"),
        ({"chat_template_kwargs": {"messages": []}}, "may not set 'messages'"),
        ({"documents": "x"}, '"documents" must be a list'),
        ({"continue_final_message": "yes"}, "must be true or false"),
        ({"continue_final_message": True, "add_generation_prompt": True}, "exclude each other"),
    ],
)
def test_options_that_make_no_sense_are_a_bad_request(body: dict[str, Any], complaint: str):
    with pytest.raises(BadRequest, match=complaint):
        PromptOptions.parse(body)


@pytest.mark.parametrize("name", ["qwen3", "llama3"])
def test_tools_with_the_name_on_top_are_the_nested_ones(renderers: dict[str, Renderer], name: str):
    flat = [GO["function"], {"type": "function", **LOOK["function"]}]
    assert renderers[name].render_text([HI], flat) == renderers[name].render_text([HI], [GO, LOOK])
    with pytest.raises(BadRequest, match='"function" that has a "name"'):
        renderers[name].render_text([HI], [{"type": "retrieval"}])


# What SFT trains


def trained(renderer: Renderer, messages: list[Any], tools: Any = None) -> list[str]:
    """The runs of trained text; their tokens are those of the whole conversation."""
    conversation = assistant_spans(renderer, messages, tools)
    assert renderer.decode(conversation.token_ids) == renderer.render_text(messages, tools)
    runs: list[list[int]] = [[]]
    for token, is_trained in zip(conversation.token_ids, conversation.mask, strict=True):
        if is_trained:
            runs[-1].append(token)
        elif runs[-1]:
            runs.append([])
    return [renderer.decode(run) for run in runs if run]


def test_llama_replies_and_calls_are_trained_over_all_turns(renderers: dict[str, Renderer]):
    messages = [
        system("s"),
        HI,
        said(" yes "),
        user("b"),
        called(("go", {"to": "north"})),
        tool("w"),
        said("ok"),
    ]
    assert trained(renderers["llama3"], messages, [GO["function"]]) == [
        "yes<|eot_id|>",
        '{"name": "go", "parameters": {"to": "north"}}<|eot_id|>',
        "ok<|eot_id|>",
    ]


def test_qwen3_thinking_and_calls_are_trained_within_a_turn(renderers: dict[str, Renderer]):
    messages = [
        HI,
        called(("go", {"to": "north"}), ("look", {}), reasoning="hm"),
        tool("w"),
        tool("v", 1),
        said("ok", reasoning_content="ho"),
    ]
    assert trained(renderers["qwen3"], messages, [GO, LOOK]) == [
        f"{THOUGHT}<tool_call>\n"
        + '{"name": "go", "arguments": {"to": "north"}}\n</tool_call>\n<tool_call>\n'
        '{"name": "look", "arguments": {}}\n</tool_call><|im_end|>',
        "<think>\nho\n</think>\n\nok<|im_end|>",
    ]


def test_qwen3_without_thinking_is_trained_to_leave_it_empty(renderers: dict[str, Renderer]):
    """The template writes the empty thought itself, and its opening of a reply does not hold it."""
    assert trained(renderers["qwen3"], [HI, said("ok")]) == ["<think>\n\n</think>\n\nok<|im_end|>"]


@pytest.mark.parametrize("more", [{}, {"reasoning": "hm"}], ids=["plain", "thinking"])
def test_qwen3_over_several_user_turns_is_refused_naming_the_reply(
    renderers: dict[str, Renderer], more: dict[str, Any]
):
    messages = [HI, said("yes", **more), user("b"), said("ok")]
    with pytest.raises(DataError, match=r"message 2: .*not prefix-stable"):
        assistant_spans(renderers["qwen3"], messages)


def test_a_line_that_the_template_refuses_is_refused_in_its_words(renderers: dict[str, Renderer]):
    with pytest.raises(BadRequest, match="single tool-calls"):
        assistant_spans(renderers["llama3"], [HI, called(("go", {}), ("look", {}))])


def test_the_templates_are_whole(renderers: dict[str, Renderer]):
    """A guard of the fixtures: the words that models of these families were trained with."""
    text = renderers["qwen3"].render_text([HI], [LOOK], True)
    assert "You may call one or more functions to assist with the user query." in text
    assert (
        json.dumps(
            {"type": "function", "function": {"name": "look", "description": None, "parameters": None}}
        )
        in text
    )
    assert "Cutting Knowledge Date: December 2023\nToday Date: " in renderers["llama3"].render_text([HI])
