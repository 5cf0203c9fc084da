"""Policy versions: the engine's labels as spans, and the fence of those who change them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.contracts.policy import PolicyVersion, ServeSpec, VersionSpan
from headrace.errors import Conflict, StaleTimeline, Unavailable


def label(version: PolicyVersion) -> str:
    """The engine's label of a version."""
    return str(version)


def spans_of(weight_versions: Sequence[dict[str, Any]] | None, n_tokens: int) -> tuple[VersionSpan, ...]:
    """The spans that tile [0, n_tokens); raises Unavailable when the engine's do not.

    >>> [str(span.version) for span in spans_of([{"version": "1.4", "start": 0, "end": 2}], 2)]
    ['1.4']
    """
    spans = []
    covered = 0
    for raw in weight_versions or ():
        start, end = raw.get("start"), raw.get("end")
        if not isinstance(end, int) or start != covered or end < covered:
            raise Unavailable(f"the engine's version spans do not tile its tokens: {weight_versions}")
        spans.append(VersionSpan(version=_parse(raw.get("version")), start=covered, end=end))
        covered = end
    if covered != n_tokens:
        raise Unavailable(f"the engine's version spans cover {covered} of {n_tokens} tokens")
    return tuple(spans)


def _parse(text: Any) -> PolicyVersion:
    try:
        return PolicyVersion.parse(text)
    except (ValueError, AttributeError) as error:
        raise Unavailable(f"the engine labels its weights {text!r}, which is no policy version") from error


def check_fence(served: ServeSpec | None, serve_id: str, fence: int) -> ServeSpec:
    """What is served, when the caller is its present owner; else Conflict or StaleTimeline."""
    if served is None:
        raise Conflict(f"nothing is served yet, so not {serve_id}")
    if served.serve_id != serve_id:
        raise Conflict(f"the policy serves {served.serve_id}, not {serve_id}")
    if served.fence != fence:
        raise StaleTimeline(f"the slot's owner has fence {served.fence}, the request carries {fence}")
    return served


def can_swap_in_place(current: ServeSpec, desired: ServeSpec) -> bool:
    """Whether only weights (and owner) differ, so that the running engine can reload."""
    return _engine_key(current) == _engine_key(desired)


def _engine_key(spec: ServeSpec) -> tuple[object, ...]:
    return spec.architecture_hash, spec.max_model_len, spec.dtype, spec.engine_args


def is_same_state(current: ServeSpec, desired: ServeSpec) -> bool:
    """Whether nothing has to be done to the engine; owner and job may differ."""
    same_weights = (current.version, current.model_path) == (desired.version, desired.model_path)
    return can_swap_in_place(current, desired) and same_weights and current.serve_id == desired.serve_id
