"""Plays an agent against the renderer as the gateway does it, with replies that the test writes.

Only the engine is stood in for: what it samples is the test's text, and its parsers are a few lines here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.fakes.trajectories import make_call, make_trajectory

from headrace.contracts.policy import Call
from headrace.render import Renderer
from headrace.render.options import PromptOptions
from headrace.render.splice import Answered, Prompt, next_prompt
from headrace.rl.sequences import Sequence as TokenRow
from headrace.rl.sequences import sequences_of

Message = dict[str, Any]
_THINK = re.compile(r"\A(?:<think>)?(.*?)(?:</think>|\Z)(.*)\Z", re.DOTALL)
_QWEN_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


@dataclass
class Episode:
    """One session: what was asked, what was sampled, and the calls as they are captured."""

    renderer: Renderer
    history: Literal["exact", "template"] = "exact"
    answered: list[Answered] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    prompts: list[Prompt] = field(default_factory=list)

    def ask(
        self,
        messages: Sequence[Message],
        sampled: Sequence[int] | str,
        *,
        tools: Any = None,
        options: PromptOptions | None = None,
        is_cut: bool = False,
        reply: Message | None = None,
    ) -> Message:
        """The reply to `messages`; a text is sampled as the tokenizer writes it, with the stop token."""
        options, index = options or PromptOptions(), len(self.calls)
        prompt = next_prompt(self.renderer, self.answered, messages, tools, self.history, options)
        ids = self.renderer.encode(sampled) if isinstance(sampled, str) else list(sampled)
        stop = None if is_cut and ids else self.renderer.eos_ids[0]
        text = self.renderer.decode(ids, skip_special=True)
        ids += [] if stop is None else [stop]
        reply = parsed(text) if reply is None else reply
        tokens = [*prompt.token_ids, *ids]
        self.answered.append(Answered(index, list(messages), reply, tools, tokens, stop, options))
        self.calls.append(
            make_call(index, list(prompt.new_ids), ids, parent=prompt.parent, split_reason=prompt.split)
        )
        self.prompts.append(prompt)
        return reply

    @property
    def prompt(self) -> Prompt:
        """The latest one."""
        return self.prompts[-1]

    def prompt_text(self) -> str:
        return self.renderer.decode(self.prompt.token_ids)

    def rows(self) -> list[TokenRow]:
        """The token rows that the trainer makes of the session."""
        return sequences_of(make_trajectory(*self.calls))


def parsed(text: str) -> Message:
    """The assistant's message that an engine reads from a sampled text."""
    message: Message = {"role": "assistant", "content": text}
    if text.startswith("<think>"):
        match = _THINK.match(text)
        assert match is not None
        message |= {"reasoning": match[1].strip("\n"), "content": match[2].lstrip("\n")}
    bodies = _QWEN_CALL.findall(message["content"])
    if not bodies and message["content"].startswith('{"name"'):
        bodies = [message["content"]]
    calls = [call for number, body in enumerate(bodies) if (call := _call_of(body, number))]
    if calls and len(calls) == len(bodies):
        before = message["content"].partition("<tool_call>")[0].strip() if "<tool_call>" in text else ""
        message |= {"content": before or None, "tool_calls": calls}
    return message


def _call_of(body: str, number: int) -> Message | None:
    try:
        call = json.loads(body)
    except ValueError:
        return None
    arguments = json.dumps(call.get("arguments", call.get("parameters")))
    function = {"name": call["name"], "arguments": arguments}
    return {"id": f"call_{number}", "type": "function", "function": function}
