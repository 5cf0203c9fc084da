"""One chat completion: render, sample, parse, capture, answer. Knows no FastAPI."""

from __future__ import annotations

import asyncio
import time
from array import array
from dataclasses import asdict, dataclass
from typing import Any
from uuid import uuid4

from headrace.contracts.base import logprobs, token_ids
from headrace.contracts.policy import Call, CallError, ServeSpec
from headrace.errors import BadRequest, HeadraceError, Unavailable
from headrace.render import Renderer
from headrace.render.messages import are_equal
from headrace.render.options import PromptOptions
from headrace.render.renderer import require_messages
from headrace.render.splice import Prompt, next_prompt
from headrace.render.template import Message, TemplateRefusal, Tool
from headrace_policy import sampling
from headrace_policy.capture import Captures, LiveSession
from headrace_policy.engine import has_reasoning_parser
from headrace_policy.engine_client import EngineClient, Sampled
from headrace_policy.in_flight import CallTask
from headrace_policy.wire import ContextOverflow, completion

_EMPTY = Prompt((), (), ())


@dataclass(frozen=True)
class ChatRequest:
    """An agent's request, checked as far as the gateway itself reads it."""

    raw: dict[str, Any]
    messages: list[Message]
    tools: list[Tool] | None
    options: PromptOptions

    @classmethod
    def parse(cls, body: Any) -> ChatRequest:
        if not isinstance(body, dict):
            raise BadRequest("the request body must be a JSON object")
        tools = body.get("tools") or None
        if tools is not None and not (isinstance(tools, list) and all(isinstance(t, dict) for t in tools)):
            raise BadRequest('"tools" must be a list of objects')
        return cls(body, require_messages(body.get("messages")), tools, PromptOptions.parse(body))

    @property
    def asked(self) -> list[Any]:
        """What tells this request's prompt from another's."""
        return [self.messages, self.tools, asdict(self.options)]

    @property
    def wants_logprobs(self) -> bool:
        return bool(self.raw.get("logprobs"))


@dataclass(frozen=True)
class Backend:
    """What a call needs of the engine: where it is, what it serves, how it renders."""

    engine: EngineClient
    spec: ServeSpec
    renderer: Renderer


@dataclass
class Draft:
    """A call before its end is known."""

    index: int
    call_id: str
    started_at: float
    prompt: Prompt = _EMPTY
    decision: sampling.Decision | None = None


async def complete(
    captures: Captures,
    backend: Backend,
    session: LiveSession,
    request: ChatRequest,
    task: CallTask,
    not_ready: str | None,
) -> dict[str, Any]:
    """Answer `request` as the session's next call; whatever happens, the call is captured.

    `not_ready` says why the engine cannot answer now.
    """
    draft = Draft(task.index, f"chatcmpl-{uuid4().hex}", time.time())
    try:
        if not_ready is not None:
            raise Unavailable(not_ready)
        sampled, reply, reason = await _sample(backend, session, request, draft)
    except HeadraceError as error:
        failure = CallError(
            status=error.status,
            code=error.code,
            message=error.message,
            is_policy_fault=_is_policy_fault(error, session, request),
        )
        await captures.append(session.opened, _call(draft, session, request, error=failure))
        raise
    except asyncio.CancelledError:
        reason = task.stop_reason or "the gateway stopped"
        stopped = _call(draft, session, request, is_trainable=False, untrainable_reason=reason)
        await captures.append(session.opened, stopped)
        raise Unavailable(f"the call was stopped: {reason}") from None
    call = _call(
        draft,
        session,
        request,
        sampled_ids=token_ids(sampled.token_ids),
        sampled_logprobs=logprobs(sampled.logprobs),
        version_spans=sampled.spans,
        finish_reason=reason,
        reply=reply,
    )
    await captures.append(session.opened, call)
    sequence = array("i", draft.prompt.token_ids)
    sequence.extend(sampled.token_ids)
    session.add(call, request.messages, request.tools, sequence, _stop_id(backend.renderer, sampled))
    model = str(request.raw.get("model") or backend.spec.serve_id)
    shown = backend.renderer.token_text if request.wants_logprobs else None
    return completion(call, len(draft.prompt.token_ids), model, shown)


async def _sample(
    backend: Backend, session: LiveSession, request: ChatRequest, draft: Draft
) -> tuple[Sampled, Message, str]:
    opened, renderer = session.opened, backend.renderer
    draft.decision = decision = sampling.decide(opened, draft.index, request.raw)
    draft.prompt = next_prompt(
        renderer,
        session.answered.values(),
        request.messages,
        request.tools,
        opened.sampling.history,
        request.options,
    )
    room = backend.spec.max_model_len - len(draft.prompt.token_ids)
    if room < 1:
        raise ContextOverflow(
            f"this model's maximum context length is {backend.spec.max_model_len} tokens, "
            f"but the messages are {len(draft.prompt.token_ids)} tokens; shorten them"
        )
    try:
        sampled = await backend.engine.generate(
            draft.prompt.token_ids, decision.engine_parameters(room), opened.ttl_s
        )
    except BadRequest as error:
        raise _Refused(error.message) from error
    reply, is_tool_call = await _reply(backend, request, draft.prompt, decision, sampled, opened.ttl_s)
    return sampled, reply, "tool_calls" if is_tool_call else sampled.finish_reason


async def _reply(
    backend: Backend,
    request: ChatRequest,
    prompt: Prompt,
    decision: sampling.Decision,
    sampled: Sampled,
    timeout_s: float,
) -> tuple[Message, bool]:
    """The assistant message, and whether it calls tools. What does not parse is text."""
    spoken = list(sampled.token_ids)
    if _stop_id(backend.renderer, sampled) is not None:
        spoken.pop()
    text = backend.renderer.decode(spoken, skip_special=True)
    reply: Message = {"role": "assistant", "content": _until_stop(text, decision.stop)}
    if not spoken or not (request.tools or has_reasoning_parser(backend.spec)):
        return reply, False
    chat = {
        "model": "policy",
        "messages": [{"role": "user", "content": ""}],  # the parsers read tools and tool_choice only
        "tools": request.tools,
    }
    if request.tools:
        chat["tool_choice"] = "none" if request.raw.get("tool_choice") == "none" else "auto"
    if request.options.variables:  # a reasoning parser looks at what the prompt was made with
        chat["chat_template_kwargs"] = dict(request.options.variables)
    try:
        parsed = await backend.engine.derender(prompt.token_ids, spoken, chat, timeout_s)
    except BadRequest:
        return reply, False
    tool_calls = parsed.get("tool_calls") or []
    content = parsed.get("content")
    reply["content"] = _until_stop(content, decision.stop) if content else (None if tool_calls else "")
    if tool_calls:
        reply["tool_calls"] = tool_calls
    if parsed.get("reasoning"):
        reply["reasoning"] = parsed["reasoning"]
    return reply, bool(tool_calls)


def _call(draft: Draft, session: LiveSession, request: ChatRequest, **outcome: Any) -> Call:
    prompt, decision = draft.prompt, draft.decision
    is_rendered = prompt is not _EMPTY
    reached: dict[str, Any] = {"sampled_ids": token_ids(), "sampled_logprobs": logprobs()} | outcome
    return Call(
        index=draft.index,
        call_id=draft.call_id,
        parent=prompt.parent,
        split_reason=prompt.split,
        new_prompt_ids=token_ids(prompt.new_ids),
        temperature=session.opened.sampling.temperature,
        seed=decision.seed if decision else None,
        new_messages=tuple(prompt.new_messages if is_rendered else request.messages),
        tools=tuple(request.tools) if request.tools and prompt.parent is None else None,
        template_variables=dict(request.options.variables),
        overridden=decision.overridden if decision else (),
        started_at=draft.started_at,
        latency_s=time.time() - draft.started_at,
        **reached,
    )


def _is_policy_fault(error: HeadraceError, session: LiveSession, request: ChatRequest) -> bool:
    """Whether the policy's own text led to the error, so that asking it again would not help.

    A template that refuses the messages is the policy's fault where one of its replies is among them
    (two tool calls at once for a template that takes one), and the agent's own otherwise.
    """
    if isinstance(error, TemplateRefusal):
        replies = [call.reply for call in session.answered.values()]
        return any(are_equal(reply, message) for reply in replies for message in request.messages)
    return isinstance(error, ContextOverflow | _Refused)


def _stop_id(renderer: Renderer, sampled: Sampled) -> int | None:
    last = sampled.token_ids[-1]
    return last if last in renderer.eos_ids else None


def _until_stop(text: str, stops: tuple[str, ...]) -> str:
    """Text before the first stop text, which the engine samples and the agent does not want."""
    ends = [text.find(stop) for stop in stops if stop in text]
    return text[: min(ends)] if ends else text


class _Refused(BadRequest):
    """The engine refuses a request that the policy's own context led to."""

    code = "engine_refused"
