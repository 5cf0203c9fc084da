"""Which tokens of a conversation the assistant wrote: the loss mask of SFT."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.errors import DataError
from headrace.render.renderer import Renderer
from headrace.render.template import Message, Tool


@dataclass(frozen=True)
class RenderedConversation:
    """Tokens and mask, both of shape (n,). Mask 1 marks what the assistant wrote, stop token included."""

    token_ids: list[int]
    mask: list[int]


def assistant_spans(
    renderer: Renderer, messages: Sequence[Message], tools: Sequence[Tool] | None = None
) -> RenderedConversation:
    """Tokens of the whole conversation as the policy would see and write them.

    Each reply is tokenised on its own behind its prompt, as it would be sampled. Raises DataError
    when the template renders an earlier turn otherwise once later ones follow, since the model
    would then be trained on text that it never meets.
    """
    whole = renderer.render_text(messages, tools)
    token_ids: list[int] = []
    mask: list[int] = []

    def add(text: str, is_assistant: bool) -> None:
        ids = renderer.encode(text) if text else []
        token_ids.extend(ids)
        mask.extend([int(is_assistant)] * len(ids))

    done = 0
    for number, message in enumerate(messages):
        if message.get("role") != "assistant":
            continue
        start, end = _reply_span(renderer, messages, tools, number, whole)
        if start < done:
            raise _unstable(number)
        add(whole[done:start], False)
        add(whole[start:end], True)
        done = end
    add(whole[done:], False)
    return RenderedConversation(token_ids, mask)


def _reply_span(
    renderer: Renderer, messages: Sequence[Message], tools: Sequence[Tool] | None, number: int, whole: str
) -> tuple[int, int]:
    """Character span of reply `number` in `whole`, its stop token included."""
    before = renderer.render_text(messages[:number], tools, add_generation_prompt=True)
    upto = renderer.render_text(messages[: number + 1], tools)
    if not upto.startswith(before) or not whole.startswith(upto):
        raise _unstable(number)
    if not upto.endswith(renderer.end_of_turn):
        return len(before), len(upto)
    n_after = min(len(renderer.after_stop(stop_id)) for stop_id in renderer.eos_ids)
    return len(before), len(upto) - n_after


def _unstable(number: int) -> DataError:
    return DataError(
        f"message {number + 1}: the chat template renders this reply otherwise once later messages follow "
        "(it is not prefix-stable), so its tokens have no fixed place; end conversations with their last "
        "reply, or use a template that keeps history as it was"
    )
