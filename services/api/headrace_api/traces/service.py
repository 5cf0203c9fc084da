"""One rollout as a person reads it: messages in full per call, and each sampled token with its text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard
from sqlmodel import Session

from headrace.contracts.policy import Call
from headrace.contracts.trajectory import Trajectory
from headrace.errors import ConfigError, NotFound, Unavailable
from headrace.store import rollouts as stored
from headrace.store.jobs import get_job
from headrace.store.models import resolve_model
from headrace.store.tables import Attempt, EventRewardRow, Rollout, Trace
from headrace_api.deps import Backends
from headrace_api.traces.decoding import token_texts


@dataclass(frozen=True)
class RolloutRecord:
    rollout: Rollout
    attempts: list[Attempt]
    event_rewards: list[EventRewardRow]
    trajectory: dict[str, Any] | None


def read_rollout(backends: Backends, org_id: str, rollout_id: str, session_id: str | None) -> RolloutRecord:
    """The rollout with one attempt's trajectory: the named one, else the accepted, else the latest."""
    with backends.store.read() as session:
        rollout = stored.get_rollout(session, org_id, rollout_id)
        attempts = stored.attempts(session, rollout_id)
        if session_id is not None and session_id not in [attempt.session_id for attempt in attempts]:
            raise NotFound(f"rollout {rollout_id} has no attempt {session_id!r}")
        shown = session_id or rollout.session_id or (attempts[-1].session_id if attempts else None)
        rewards = stored.event_rewards(session, shown) if shown else []
        trace = stored.trace(session, shown) if shown else None
        tokenizer = _tokenizer(session, backends, org_id, rollout.job_id)
    trajectory = None if trace is None else _view(_load(backends, trace), tokenizer)
    return RolloutRecord(rollout, attempts, rewards, trajectory)


def _load(backends: Backends, trace: Trace) -> Trajectory:
    try:
        body = backends.artifacts.read(trace.path, trace.sha256)
    except FileNotFoundError:
        raise Unavailable(f"the trace {trace.path} is gone from the artifacts") from None
    return Trajectory.model_validate_json(zstandard.decompress(body))


def _tokenizer(session: Session, backends: Backends, org_id: str, job_id: str) -> Path | None:
    """The tokenizer of the model that the job started from; None when the model is gone."""
    try:
        job = get_job(session, org_id, job_id)
        model = resolve_model(session, org_id, job.model, backends.settings)
    except (ConfigError, NotFound):
        return None
    path = model.path / "tokenizer.json"
    return path if path.is_file() else None


def _view(trajectory: Trajectory, tokenizer: Path | None) -> dict[str, Any]:
    view = trajectory.model_dump(mode="json", exclude={"calls"})
    histories: dict[int, list[Any]] = {}
    prompts: dict[int, int] = {}
    tools: dict[int, Any] = {}
    views = []
    for call in trajectory.calls:
        parent = call.parent
        before = [] if parent is None else histories[parent]
        prompt = len(call.new_prompt_ids) + (0 if parent is None else prompts[parent])
        messages = [*before, *call.new_messages]
        histories[call.index] = messages if call.reply is None else [*messages, call.reply]
        prompts[call.index] = prompt + len(call.sampled_ids)
        tools[call.index] = call.tools if parent is None else tools[parent]
        facts = call.model_dump(
            mode="json",
            exclude={"new_prompt_ids", "sampled_ids", "sampled_logprobs", "new_messages", "tools"},
        )
        views.append(
            facts
            | {
                "messages": messages,
                "tools": tools[call.index],
                "n_prompt_tokens": prompt,
                "tokens": _tokens(call, tokenizer),
            }
        )
    return view | {"calls": views}


def _tokens(call: Call, tokenizer: Path | None) -> list[dict[str, Any]]:
    ids = list(call.sampled_ids)
    versions = [str(span.version) for span in call.version_spans for _ in range(span.start, span.end)]
    return [
        {"id": id, "text": text, "logprob": logprob, "version": version}
        for id, text, logprob, version in zip(
            ids, token_texts(tokenizer, ids), call.sampled_logprobs, versions, strict=True
        )
    ]
