"""The prompt tokens of a session's next call: earlier tokens taken over as they were, new text behind them.

Design rule 5. Pure: it knows nothing of Redis or HTTP.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from headrace.render.messages import are_equal, is_prefix
from headrace.render.renderer import Renderer
from headrace.render.template import Message, Tool

SEAM_WINDOW = 200
"""Characters before the seam that are looked at; a merge across it reaches less far."""


class Split(StrEnum):
    """Why a call starts a new sequence although the session has earlier ones."""

    HISTORY_DIFFERS = "history_differs"
    """The messages do not begin with what any earlier call has seen and answered."""
    TOOLS_CHANGED = "tools_changed"
    TEMPLATE_NOT_PREFIX = "template_not_prefix"
    """The template renders the earlier turns otherwise once new messages follow."""
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


def next_prompt(
    renderer: Renderer,
    answered: Iterable[Answered],
    messages: Sequence[Message],
    tools: Sequence[Tool] | None,
    history: Literal["exact", "template"] = "exact",
) -> Prompt:
    """The prompt for `messages`, continuing the longest earlier call that they begin with.

    Of equally long ones the latest is taken.
    """
    calls = sorted(answered, key=lambda call: (call.n_messages, call.index), reverse=True)
    parent = next((call for call in calls if _begins_with(messages, call)), None)
    if parent is None:
        return _fresh(renderer, messages, tools, Split.HISTORY_DIFFERS if calls else None)
    if list(parent.tools or ()) != list(tools or ()):
        return _fresh(renderer, messages, tools, Split.TOOLS_CHANGED)
    if history == "template":
        return _template_history(renderer, parent, messages, tools)
    tail = _tail(renderer, parent, messages, tools)
    if isinstance(tail, Split):
        return _fresh(renderer, messages, tools, tail)
    new_ids = renderer.encode(tail)
    return Prompt([*parent.token_ids, *new_ids], new_ids, messages[parent.n_messages :], parent.index)


def _begins_with(messages: Sequence[Message], call: Answered) -> bool:
    if len(messages) < call.n_messages:
        return False
    return is_prefix(call.messages, messages) and are_equal(call.reply, messages[call.n_messages - 1])


def _fresh(
    renderer: Renderer, messages: Sequence[Message], tools: Sequence[Tool] | None, split: Split | None
) -> Prompt:
    ids = renderer.encode(renderer.render_text(messages, tools, add_generation_prompt=True))
    return Prompt(ids, ids, messages, split=split)


def _template_history(
    renderer: Renderer, parent: Answered, messages: Sequence[Message], tools: Sequence[Tool] | None
) -> Prompt:
    fresh = _fresh(renderer, messages, tools, Split.TEMPLATE_HISTORY)
    n = len(parent.token_ids)
    if list(fresh.token_ids[:n]) != list(parent.token_ids):
        return fresh
    return Prompt(fresh.token_ids, fresh.token_ids[n:], messages[parent.n_messages :], parent.index)


def _tail(
    renderer: Renderer, parent: Answered, messages: Sequence[Message], tools: Sequence[Tool] | None
) -> str | Split:
    """Text behind the parent's last sampled token: rest of the end of turn, new messages, new prompt."""
    seen = renderer.render_text(messages[: parent.n_messages], tools)
    whole = renderer.render_text(messages, tools, add_generation_prompt=True)
    if not whole.startswith(seen):
        return Split.TEMPLATE_NOT_PREFIX
    if not seen.endswith(renderer.end_of_turn):
        return Split.END_OF_TURN_UNKNOWN
    tail = renderer.after_stop(parent.stop_id) + whole[len(seen) :]
    if parent.stop_id is not None:
        before = renderer.token_text(parent.stop_id)
    else:
        before = seen[: len(seen) - len(renderer.end_of_turn)][-SEAM_WINDOW:]
    return tail if is_clean_seam(renderer, before, tail) else Split.SEAM_RETOKENISES


def is_clean_seam(renderer: Renderer, before: str, after: str) -> bool:
    """Whether both pieces tokenised separately give the tokens of the whole."""
    return renderer.encode(before + after) == [*renderer.encode(before), *renderer.encode(after)]
