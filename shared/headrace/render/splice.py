"""The prompt tokens of a session's next call: earlier tokens taken over as they were, new text behind them.

Design rule 5. Pure: it knows nothing of Redis or HTTP.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from headrace.render.messages import are_equal, is_prefix
from headrace.render.options import PromptOptions
from headrace.render.renderer import SENTINEL, Renderer
from headrace.render.template import Message, TemplateRefusal, Tool

SEAM_TOKENS = 64
"""Tokens before the seam that are looked at; a merge across it reaches less far."""
_PLAIN = PromptOptions()


class Split(StrEnum):
    """Why a call starts a new sequence although the session has earlier ones."""

    HISTORY_DIFFERS = "history_differs"
    """The messages do not begin with what any earlier call has seen and answered."""
    TOOLS_CHANGED = "tools_changed"
    TEMPLATE_SETTINGS_CHANGED = "template_settings_changed"
    """The request's `chat_template_kwargs` make other text of the earlier turns."""
    CONTINUES_REPLY = "continues_reply"
    """The request goes on with the last reply itself (`continue_final_message`)."""
    TEMPLATE_NOT_PREFIX = "template_not_prefix"
    """The template writes nothing that could be told apart as the text behind the last reply."""
    END_OF_TURN_UNKNOWN = "end_of_turn_unknown"
    """The template ends this reply in another way than it ends a plain one."""
    SEAM_RETOKENISES = "seam_retokenises"
    """Text on both sides of the seam would be one token."""
    TEMPLATE_HISTORY = "template_history"
    """The job asks for the template's own history, and its tokens are not the earlier ones."""


@dataclass(frozen=True)
class Answered:
    """An earlier call of the session that got a reply."""

    index: int
    messages: Sequence[Message]
    """All messages that it was asked with."""
    reply: Message
    tools: Sequence[Tool] | None
    token_ids: Sequence[int]
    """Its whole prompt followed by what was sampled."""
    stop_id: int | None
    """The sampled stop token; None when the reply was cut off."""
    options: PromptOptions = _PLAIN

    @property
    def n_messages(self) -> int:
        """Messages up to and with the reply."""
        return len(self.messages) + 1


@dataclass(frozen=True)
class Prompt:
    """Prompt of a call: the parent's tokens (if any), then `new_ids`."""

    token_ids: Sequence[int]
    new_ids: Sequence[int]
    new_messages: Sequence[Message]
    parent: int | None = None
    split: Split | None = None


@dataclass(frozen=True)
class _Request:
    """What is asked for now."""

    renderer: Renderer
    messages: Sequence[Message]
    tools: Sequence[Tool] | None
    options: PromptOptions

    def text(self, messages: Sequence[Message]) -> str:
        """Messages that are over, as the template writes them."""
        return self.renderer.render_text(messages, self.tools, variables=self.options.variables)

    def prompt(self, messages: Sequence[Message]) -> str:
        return self.renderer.prompt_text(messages, self.tools, self.options)

    def fresh(self, split: Split | None) -> Prompt:
        """The whole prompt as the template writes it, as a sequence of its own."""
        ids = self.renderer.encode(self.prompt(self.messages))
        return Prompt(ids, ids, self.messages, split=split)


def next_prompt(
    renderer: Renderer,
    answered: Iterable[Answered],
    messages: Sequence[Message],
    tools: Sequence[Tool] | None,
    history: Literal["exact", "template"] = "exact",
    options: PromptOptions = _PLAIN,
) -> Prompt:
    """The prompt for `messages`, continuing the longest earlier call that they begin with.

    Of equally long ones the latest is taken.
    """
    request = _Request(renderer, messages, tools, options)
    calls = sorted(answered, key=lambda call: (call.n_messages, call.index), reverse=True)
    parent = next((call for call in calls if _begins_with(messages, call)), None)
    if parent is None:
        return request.fresh(Split.HISTORY_DIFFERS if calls else None)
    if list(parent.tools or ()) != list(tools or ()):
        return request.fresh(Split.TOOLS_CHANGED)
    if options.continue_final_message and len(messages) == parent.n_messages:
        return request.fresh(Split.CONTINUES_REPLY)
    if history == "template":
        return _template_history(request, parent)
    tail = _tail(request, parent)
    if isinstance(tail, Split):
        return request.fresh(tail)
    new_ids = renderer.encode(tail)
    return Prompt([*parent.token_ids, *new_ids], new_ids, messages[parent.n_messages :], parent.index)


def _begins_with(messages: Sequence[Message], call: Answered) -> bool:
    if len(messages) < call.n_messages:
        return False
    return is_prefix(call.messages, messages) and are_equal(call.reply, messages[call.n_messages - 1])


def _template_history(request: _Request, parent: Answered) -> Prompt:
    fresh = request.fresh(Split.TEMPLATE_HISTORY)
    n = len(parent.token_ids)
    if list(fresh.token_ids[:n]) != list(parent.token_ids):
        return fresh
    new_messages = request.messages[parent.n_messages :]
    return Prompt(fresh.token_ids, fresh.token_ids[n:], new_messages, parent.index)


def _tail(request: _Request, parent: Answered) -> str | Split:
    """Text behind the parent's last sampled token: rest of the end of turn, new messages, new prompt."""
    renderer = request.renderer
    asked = request.messages[: parent.n_messages - 1]
    if request.options.variables != parent.options.variables:
        earlier = renderer.render_text(asked, request.tools, variables=parent.options.variables)
        if earlier != request.text(asked):
            return Split.TEMPLATE_SETTINGS_CHANGED
    behind = _behind_reply(request, parent)
    if isinstance(behind, Split):
        return behind
    tail = renderer.after_stop(parent.stop_id) + behind
    if parent.stop_id is not None:
        before = renderer.token_text(parent.stop_id)
    else:
        before = renderer.decode(parent.token_ids[-SEAM_TOKENS:])
    return tail if is_clean_seam(renderer, before, tail) else Split.SEAM_RETOKENISES


def _behind_reply(request: _Request, parent: Answered) -> str | Split:
    """What the template writes behind the turn of the parent's reply.

    A template may write a reply otherwise once messages follow (Qwen3 leaves its reasoning out then).
    The tokens of the reply are kept as they were all the same; so the text behind it is looked up
    behind a mark in its place.
    """
    n = parent.n_messages
    seen, whole = request.text(request.messages[:n]), request.prompt(request.messages)
    if not whole.startswith(seen):
        marked = [*request.messages[: n - 1], _marked(request.messages[n - 1])]
        try:
            seen = request.text(marked).rpartition(SENTINEL)[2]
            whole = request.prompt([*marked, *request.messages[n:]])
        except TemplateRefusal:
            return Split.TEMPLATE_NOT_PREFIX
        _, mark, whole = whole.rpartition(SENTINEL)
        if not mark or not whole.startswith(seen):
            return Split.TEMPLATE_NOT_PREFIX
    if not seen.endswith(request.renderer.end_of_turn):
        return Split.END_OF_TURN_UNKNOWN
    return whole[len(seen) :]


def _marked(reply: Message) -> Message:
    """A reply of the same kind with a mark where templates write its last piece."""
    calls = reply.get("tool_calls")
    if not calls:
        return {"role": "assistant", "content": SENTINEL}
    *before, last = calls
    function = {**last["function"], "arguments": {SENTINEL: ""}}
    return {
        "role": "assistant",
        "content": reply.get("content"),
        "tool_calls": [*before, {**last, "function": function}],
    }


def is_clean_seam(renderer: Renderer, before: str, after: str) -> bool:
    """Whether both pieces tokenised separately give the tokens of the whole."""
    return renderer.encode(before + after) == [*renderer.encode(before), *renderer.encode(after)]
