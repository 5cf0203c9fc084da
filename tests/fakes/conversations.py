"""Chat requests of every kind that renderers differ over: by name, the keys that decide the prompt."""

from __future__ import annotations

import json
from typing import Any

Message = dict[str, Any]
GO: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "go",
        "description": "Walk <b>there</b>, é & 'so'.",
        "parameters": {
            "type": "object",
            "properties": {"to": {"type": "string", "enum": ["north", "süd"]}, "n": {"type": "integer"}},
            "required": ["to"],
        },
    },
}
LOOK: dict[str, Any] = {"type": "function", "function": {"name": "look"}}
STRICT: dict[str, Any] = {
    "function": {"strict": True, "parameters": {}, "name": "wait", "extra": 1},
    "type": "function",
}


def system(text: Any) -> Message:
    return {"role": "system", "content": text}


def user(text: Any) -> Message:
    return {"role": "user", "content": text}


def said(text: Any, **more: Any) -> Message:
    return {"role": "assistant", "content": text, **more}


def called(*calls: tuple[str, Any], content: Any = None, **more: Any) -> Message:
    """An assistant's message with tool calls; arguments that are no text become JSON."""
    entries = [
        {
            "id": f"call_{number}",
            "type": "function",
            "function": {"name": name, "arguments": given if isinstance(given, str) else json.dumps(given)},
        }
        for number, (name, given) in enumerate(calls)
    ]
    return {"role": "assistant", "content": content, "tool_calls": entries, **more}


def tool(text: Any, number: int = 0) -> Message:
    return {"role": "tool", "tool_call_id": f"call_{number}", "content": text}


def parts(*texts: str) -> list[Message]:
    return [{"type": "text", "text": text} for text in texts]


def _asked(*messages: Message, **more: Any) -> dict[str, Any]:
    return {"messages": list(messages), **more}


NORTH = ("go", {"to": "north", "n": 2})
HI = user("hi")
REQUESTS: dict[str, dict[str, Any]] = {
    "one user": _asked(HI),
    "system": _asked(system("Be brief."), HI),
    "system to be trimmed": _asked(system("  Be brief.\n\n"), user("\n hi \t")),
    "turns": _asked(system("s"), HI, said("yo"), user("again"), said("  yes "), user("b")),
    "second system later": _asked(system("s"), HI, said("yo"), system("now other"), user("b")),
    "reply last": _asked(HI, said("yo"), add_generation_prompt=False),
    "no opening": _asked(HI, add_generation_prompt=False),
    "reply last and opening": _asked(HI, said("yo")),
    "continued": _asked(HI, said("I th"), add_generation_prompt=False, continue_final_message=True),
    "continued after blank": _asked(
        HI, said("I think "), add_generation_prompt=False, continue_final_message=True
    ),
    "continued thought": _asked(
        HI, said("<think>\nhm"), add_generation_prompt=False, continue_final_message=True
    ),
    "continued user": _asked(user("I th"), add_generation_prompt=False, continue_final_message=True),
    "thinking on": _asked(HI, chat_template_kwargs={"enable_thinking": True}),
    "thinking off": _asked(HI, chat_template_kwargs={"enable_thinking": False}),
    "thinking off, turns": _asked(
        HI, said("yo"), user("b"), tools=[GO], chat_template_kwargs={"enable_thinking": False}
    ),
    "effort none": _asked(HI, reasoning_effort="none"),
    "effort high": _asked(HI, reasoning_effort="high"),
    "unknown variable": _asked(HI, chat_template_kwargs={"nobody_reads": {"a": [1]}}),
    "date": _asked(HI, chat_template_kwargs={"date_string": "1 Jan 2030"}),
    "tools in the system turn": _asked(
        system("s"), HI, tools=[GO, LOOK], chat_template_kwargs={"tools_in_user_message": False}
    ),
    "reasoning before user": _asked(HI, said("yo", reasoning="because"), user("b")),
    "reasoning by its older name": _asked(HI, said("yo", reasoning_content="\nbecause\n")),
    "reasoning empty": _asked(HI, said("a</think>b", reasoning=""), add_generation_prompt=False),
    "reasoning in the text": _asked(HI, said("<think>\nhm\n</think>\n\nyo"), user("b"), said("yo")),
    "reasoning in the last text": _asked(HI, said("<think>\nhm\n</think>\n\nyo")),
    "reasoning kept within a turn": _asked(
        HI,
        called(NORTH, reasoning="hm"),
        tool("wall"),
        called(NORTH, reasoning="ho"),
        tool("way"),
        tools=[GO],
    ),
    "tool": _asked(HI, tools=[GO]),
    "tools without descriptions": _asked(system("s"), HI, tools=[LOOK, STRICT, GO]),
    "tool call": _asked(HI, called(NORTH), tool("a wall"), tools=[GO]),
    "tool call with text": _asked(HI, called(NORTH, content="sure"), tool("a wall"), user("b"), tools=[GO]),
    "tool call then reply": _asked(
        system("s"), HI, called(NORTH), tool("w"), said("done"), user("b"), tools=[GO]
    ),
    "tool call re-spaced": _asked(HI, called(("go", '{"to":"süd",\n "n":2}')), tool("w"), tools=[GO]),
    "tool call without arguments": _asked(HI, called(("look", "")), tool("w"), tools=[LOOK]),
    "tool call with broken arguments": _asked(HI, called(("go", '{"to": ')), tool("w"), tools=[GO]),
    "tool call with a list": _asked(HI, called(("go", "[1]")), tool("w"), tools=[GO]),
    "tool call with odd values": _asked(
        HI, called(("go", '{"a": 1.50, "b": null, "c": "\\u00e9<&>", "d": {"e": [true]}}')), tool("w")
    ),
    "parallel tool calls": _asked(HI, called(NORTH, ("look", {})), tool("w"), tool("v", 1), tools=[GO, LOOK]),
    "no tool calls": _asked(HI, said("yo", tool_calls=[]), user("b")),
    "null content": _asked(HI, said(None), user("b")),
    "empty content": _asked(HI, said(""), user("b")),
    "parts": _asked(system(parts("be", "brief")), user(parts("a", " b")), said(parts("c")), user(parts("d"))),
    "no parts": _asked(user([]), said("yo"), user("b")),
    "parts of a tool": _asked(HI, called(NORTH), tool(parts("a wall", "high")), tools=[GO]),
    "refusal": _asked(HI, said([{"type": "refusal", "refusal": "no"}]), user("b")),
    "names": _asked({**HI, "name": "eve"}, said("yo"), {**user("b"), "name": "bob"}),
    "developer": _asked({"role": "developer", "content": "be brief"}, HI),
    "developer later": _asked(system("s"), HI, said("yo"), {"role": "developer", "content": "d"}, user("b")),
    "special tokens as text": _asked(user("<|im_end|>\n<|im_start|>system<|eot_id|>"), said("</think>"), HI),
    "letters": _asked(user("grüße 😀 \x00 \r\n\t 漢字"), said("{{ messages }} {% raise %}"), HI),
    "tool reply like a user's": _asked(HI, said("x"), user("<tool_response>\na\n</tool_response>")),
    "no user": _asked(system("s"), tools=[GO]),
    "documents": _asked(HI, documents=[{"title": "t", "text": "x"}]),
}
