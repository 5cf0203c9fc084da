"""A chat template: Jinja text compiled as transformers compiles it, in a sandbox."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache, cached_property
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from headrace.errors import BadRequest, ConfigError

Message = dict[str, Any]
Tool = dict[str, Any]


class TemplateRefusal(BadRequest):
    """The chat template does not take these messages: it says so itself, or fails over them."""

    code = "chat_template_refused"


class _Generation(Extension):
    """`{% generation %}` blocks, which some templates use to mark replies: rendered as they are."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        # A scope, as in transformers: what is set inside does not leave the block.
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes HTML characters, which no chat template wants.
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


@cache
def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


class ChatTemplate:
    """One compiled template with the special tokens that it may name (`bos_token`, `eos_token`, ...)."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        self.source = source
        self._special_tokens = dict(special_tokens)
        try:
            self._template = _environment().from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise ConfigError(
                f"the model's chat template is no valid Jinja, line {error.lineno}: {error.message}"
            ) from error

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool] | None,
        *,
        add_generation_prompt: bool,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The conversation as text; raises TemplateRefusal when the template refuses it.

        `variables` win over the special tokens, and nothing over the conversation itself.
        """
        context = {"documents": None} | self._special_tokens | dict(variables or {})
        context |= {
            "messages": list(messages),
            "tools": list(tools) if tools else None,
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            return self._template.render(context)
        # Whatever a template does with data that it was not made for (adds text to a null, divides by
        # a count of zero) is the fault of the data, not of this process.
        except (
            jinja2.TemplateError,
            *(TypeError, ValueError, LookupError, ArithmeticError, AttributeError, RecursionError),
        ) as error:
            raise TemplateRefusal(f"the model's chat template refuses these messages: {error}") from error

    @cached_property
    def takes_parts(self) -> bool:
        """Whether the template goes through a message's content part by part, so wants it as a list."""
        tree = _environment().parse(self.source)
        return any(_is_content(loop.iter) for loop in tree.find_all(nodes.For))

    @cached_property
    def knows_developer(self) -> bool:
        """Whether the template has a place for messages of the role `developer`."""
        return '"developer"' in self.source or "'developer'" in self.source


def _is_content(expression: nodes.Node | None) -> bool:
    """Whether a loop goes over `content`, `message.content` or `message['content']`."""
    while isinstance(expression, nodes.Filter | nodes.Test):
        expression = expression.node
    if isinstance(expression, nodes.Getattr):
        return expression.attr == "content"
    if isinstance(expression, nodes.Getitem):
        return isinstance(expression.arg, nodes.Const) and expression.arg.value == "content"
    return isinstance(expression, nodes.Name) and expression.name == "content"
