"""What the policy serves, and what its gateway captures."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from headrace.contracts.base import Contract, Logprobs, TokenIds


class PolicyVersion(Contract):
    """The n-th weights of a timeline; n-th weights of two timelines differ.

    >>> str(PolicyVersion(timeline=2, n=17))
    '2.17'
    """

    timeline: int = Field(ge=0)
    n: int = Field(ge=0)

    def __str__(self) -> str:
        return f"{self.timeline}.{self.n}"

    @classmethod
    def parse(cls, text: str) -> Self:
        timeline, n = text.split(".")
        return cls(timeline=int(timeline), n=int(n))


class VersionSpan(Contract):
    """Sampled tokens [start, end) of a call were drawn from `version`."""

    version: PolicyVersion
    start: int = Field(ge=0)
    end: int = Field(ge=0)


class Sampling(Contract):
    """What the job decides about sampling; it wins over what the agent asks for in RL mode.

    Other settings that change the distribution (top_p, top_k, min_p, penalties, logit bias)
    are neutral, so that what was sampled is what the trainer scores.
    """

    temperature: float = Field(default=1.0, ge=0.0)
    max_tokens: int | None = Field(default=None, ge=1)
    """Bound of one reply; None takes what the agent asks for, else what fits."""
    seed: int | None = None
    """The job's seed when each call gets a seed of its own (`ids.sampling_seed`); None draws freely."""
    history: Literal["exact", "template"] = "exact"
    """`exact` keeps a session's earlier tokens; `template` renders the template's own history anew."""


class ServeSpec(Contract):
    """The desired state of a (pool, slot): what the engine there has to serve."""

    serve_id: str
    """Named by sessions, which are refused for another."""
    job_id: str
    model_path: str
    """Folder in HF layout with config, tokenizer and weights of `version`."""
    architecture_hash: str
    """sha256 over config and tokenizer files: equal means that weights can be swapped in place."""
    max_model_len: int = Field(ge=16)
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    engine_args: tuple[str, ...] = ()
    """Further vLLM arguments of the topology (parsers, parallelism)."""
    version: PolicyVersion
    fence: int
    """Token of the slot's owner; a smaller one is refused."""


class EngineState(StrEnum):
    """Where the engine of a (pool, slot) stands; the job page shows it."""

    IDLE = "idle"
    """No engine is loaded: nothing has been asked for."""
    STARTING = "starting"
    """The engine process loads the model (seconds to minutes)."""
    READY = "ready"
    FAILED = "failed"
    """The engine could not be started; `reason` says why."""


class PolicyStatus(Contract):
    """What the gateway reports of its engine."""

    state: EngineState
    serve_id: str | None = None
    version: PolicyVersion | None = None
    fence: int = 0
    reason: str | None = None
    since: float = 0.0
    """Unix time of the last change of state."""
    n_in_flight: int = 0


class SessionOpen(Contract):
    """A worker's request for a session: one attempt at one rollout."""

    session_id: str
    job_id: str
    rollout_id: str
    attempt: int
    timeline: int
    serve_id: str
    mode: Literal["rl", "eval"]
    sampling: Sampling
    ttl_s: float = Field(gt=0)
    """The session is forgotten this long after its opening, whatever happens."""


class Call(Contract):
    """One captured request to the policy and the exact tokens of its reply.

    Tokens are kept as deltas. With `parent = None` the prompt is `new_prompt_ids`; otherwise it is
    prompt(parent) + sampled(parent) + `new_prompt_ids`. Messages likewise: messages(parent),
    the parent's reply, then `new_messages`.
    """

    index: int = Field(ge=0)
    """Order of arrival in the session, from 0."""
    call_id: str
    """Id of the chat completion that the agent got."""
    parent: int | None = None
    split_reason: str | None = None
    """Why a call that could have continued an earlier one starts a new sequence."""
    new_prompt_ids: TokenIds
    sampled_ids: TokenIds
    """Ends with the stop token when one was sampled."""
    sampled_logprobs: Logprobs
    """log p of each sampled token at `temperature`, same length as `sampled_ids`."""
    version_spans: tuple[VersionSpan, ...] = ()
    temperature: float = 1.0
    seed: int | None = None
    finish_reason: str | None = None
    """`stop`, `length` or `tool_calls`; None when there was no reply."""
    new_messages: tuple[dict[str, Any], ...] = ()
    tools: tuple[dict[str, Any], ...] | None = None
    """Tools of the request, on calls without a parent."""
    template_variables: dict[str, Any] = Field(default_factory=dict)
    """What the request gave to the chat template besides, such as `enable_thinking`."""
    reply: dict[str, Any] | None = None
    """The assistant message as the agent got it."""
    is_trainable: bool = True
    untrainable_reason: str | None = None
    error: CallError | None = None
    overridden: tuple[str, ...] = ()
    """Sampling keys of the agent that the job's settings replaced."""
    started_at: float = 0.0
    latency_s: float = 0.0

    @model_validator(mode="after")
    def _columns_align(self) -> Self:
        if len(self.sampled_ids) != len(self.sampled_logprobs):
            raise ValueError(
                f"call {self.index}: {len(self.sampled_ids)} sampled tokens but "
                f"{len(self.sampled_logprobs)} logprobs"
            )
        covered = 0
        for span in self.version_spans:
            if span.start != covered or span.end < span.start:
                raise ValueError(f"call {self.index}: version spans do not tile the sampled tokens")
            covered = span.end
        if len(self.sampled_ids) and covered != len(self.sampled_ids):
            raise ValueError(
                f"call {self.index}: version spans cover {covered} of {len(self.sampled_ids)} tokens"
            )
        return self


class CallError(Contract):
    """Why a call got no reply. `is_policy_fault` tells a context overflow from a broken engine."""

    status: int
    code: str
    message: str
    is_policy_fault: bool


class CapturedSession(Contract):
    """Everything that one session's calls left at the gateway."""

    session_id: str
    rollout_id: str
    calls: tuple[Call, ...]


class PublishRequest(Contract):
    """Make `version` live: the trainer's request to the gateway, under the slot owner's fence."""

    serve_id: str
    fence: int
    version: PolicyVersion
    weights_path: str


class PublishResult(Contract):
    version: PolicyVersion
    pause_s: float
    """Time for which requests in flight were frozen."""


class ProbeRequest(Contract):
    """Continue `prompt_ids` greedily by `n_tokens`, twice (cold, then from the prefix cache)."""

    serve_id: str
    fence: int
    prompt_ids: TokenIds
    n_tokens: int = Field(default=8, ge=1)


class ProbeResult(Contract):
    version: PolicyVersion
    sampled_ids: TokenIds
    cold_logprobs: Logprobs
    cached_logprobs: Logprobs
