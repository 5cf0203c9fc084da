"""The tokenizer and chat template of one model folder, and what they say about the end of a turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from headrace.errors import BadRequest, ConfigError
from headrace.render.conversation import conversation_for
from headrace.render.folder import chat_templates, eos_ids, read_json, special_tokens
from headrace.render.options import PromptOptions
from headrace.render.template import ChatTemplate, Message, TemplateRefusal, Tool
from headrace.render.tools import normalised_tools

SENTINEL = "headrace sentinel reply"


class Renderer:
    """Turns conversations into tokens and tokens into text, exactly as the served model expects them.

    A model may have a template of its own for requests with tools.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: ChatTemplate,
        eos_ids: Sequence[int],
        tool_template: ChatTemplate | None = None,
    ) -> None:
        self._tokenizer, self._template = tokenizer, template
        self._tool_template = tool_template or template
        self.eos_ids = tuple(eos_ids)
        """Ids that end a reply when sampled."""

    @classmethod
    def load(cls, folder: Path) -> Renderer:
        """Read `tokenizer.json`, the chat template and the stop tokens; raises ConfigError when one lacks."""
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise ConfigError(f"model folder {folder} has no tokenizer.json; save a fast tokenizer there")
        tokenizer = Tokenizer.from_file(str(path))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        facts = read_json(folder / "tokenizer_config.json")
        special = special_tokens(folder, facts)
        sources = chat_templates(folder, facts)
        by_name = {name: ChatTemplate(source, special) for name, source in sources.items()}
        stops = eos_ids(folder, tokenizer, special)
        return cls(tokenizer, by_name["default"], stops, by_name.get("tool_use"))

    def render_text(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool] | None = None,
        add_generation_prompt: bool = False,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The conversation as the template writes it; `variables` are what it may look at besides."""
        template = self._tool_template if tools else self._template
        return template.render(
            conversation_for(template, messages),
            normalised_tools(tools),
            add_generation_prompt=add_generation_prompt,
            variables=variables,
        )

    def prompt_text(
        self, messages: Sequence[Message], tools: Sequence[Tool] | None, options: PromptOptions
    ) -> str:
        """The prompt that a request asks for."""
        if options.continue_final_message:
            return self._open_ended(messages, tools, options)
        return self.render_text(messages, tools, options.add_generation_prompt, options.variables)

    def _open_ended(
        self, messages: Sequence[Message], tools: Sequence[Tool] | None, options: PromptOptions
    ) -> str:
        """The conversation up to the last character of its last message's text."""
        *before, last = messages
        marked = {**last, "content": _with_mark(last.get("content"), SENTINEL + " ")}
        text = self.render_text([*before, marked], tools, variables=options.variables)
        start, mark, rest = text.rpartition(SENTINEL)
        if not mark:
            raise TemplateRefusal(
                "the model's chat template does not write the text of the last message, so it cannot be "
                "continued; leave continue_final_message out"
            )
        # A template that trims the end of a message has taken the mark's blank, and would take the text's.
        return start if rest.startswith(" ") else start.rstrip()

    def encode(self, text: str) -> list[int]:
        """Token ids of text; the names of special tokens in it become those tokens."""
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int], *, skip_special: bool = False) -> str:
        return self._tokenizer.decode(list(ids), skip_special_tokens=skip_special)

    def token_text(self, token_id: int) -> str:
        """Text of one token in the vocabulary, for special tokens the name that templates write."""
        return self._tokenizer.id_to_token(token_id) or ""

    @cached_property
    def end_of_turn(self) -> str:
        """What the template writes after an assistant's text, such as `<|im_end|>` and a newline."""
        probe = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": SENTINEL}]
        return self.render_text(probe).rpartition(SENTINEL)[2]

    def after_stop(self, stop_id: int | None) -> str:
        """What the template still writes after a reply that ended with `stop_id` (None: was cut off).

        A sampled stop token other than the template's own stands in its place.
        """
        if stop_id is None:
            return self.end_of_turn
        candidates = (self.token_text(stop_id), *map(self.token_text, self.eos_ids))
        for text in filter(None, candidates):
            if text in self.end_of_turn:
                return self.end_of_turn.partition(text)[2]
        return self.end_of_turn


def _with_mark(content: Any, mark: str) -> Any:
    """The content with a mark behind its last text."""
    if not isinstance(content, list):
        return (content or "") + mark if isinstance(content, str | None) else content
    *before, last = content or [""]
    if isinstance(last, dict) and isinstance(last.get("text"), str):
        return [*before, {**last, "text": last["text"] + mark}]
    return [*before, last + mark if isinstance(last, str) else last]


def require_messages(messages: Any) -> list[Message]:
    """The `messages` of a request: a non-empty list of objects."""
    if not isinstance(messages, list) or not messages:
        raise BadRequest('"messages" must be a list of at least one message')
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise BadRequest('each message must be an object with a "role"')
    return messages
