"""A conversation in the form that a template expects, as the engine's own renderer makes it."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.render.messages import normalised, text_of
from headrace.render.template import ChatTemplate, Message


def conversation_for(template: ChatTemplate, messages: Sequence[Message]) -> list[Message]:
    """All messages, normalised; a template without a role `developer` gets such messages as the system's."""
    plain = [normalised(message, template.takes_parts) for message in messages]
    if template.knows_developer or not any(message["role"] == "developer" for message in plain):
        return plain
    return _one_system_message([_as_system(message) for message in plain])


def _as_system(message: Message) -> Message:
    return {**message, "role": "system"} if message["role"] == "developer" else message


def _one_system_message(messages: list[Message]) -> list[Message]:
    """All system messages as one in front: templates that know no developer take no later one either."""
    system = [message for message in messages if message["role"] == "system"]
    if len(system) == 1 and messages[0] is system[0]:
        return messages
    texts = [text for message in system if (text := text_of(message["content"]))]
    others = [message for message in messages if message["role"] != "system"]
    return [{"role": "system", "content": "\n\n".join(texts)}, *others]
