"""Sections that several job types share."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from headrace.config.base import Section, Unused


class Model(Section):
    """`[model]`: where training starts."""

    base: str | None = None
    """A base model: a local folder, a registered name, a hub id in the local cache, or an alias."""
    source: str | None = None
    """A model id that a job ended with (`ft:<base>:<job>`), or a checkpoint folder."""
    trainer_mode: Literal["full"] = "full"
    """All weights are trained."""
    label: Unused = None
    supports_vision: Unused = None

    @model_validator(mode="after")
    def _exactly_one_start(self) -> Self:
        if (self.base is None) == (self.source is None):
            raise ValueError("[model] needs exactly one of `base` and `source`")
        return self

    @property
    def start(self) -> str:
        start = self.base or self.source
        assert start is not None
        return start


class Backend(Section):
    """`[backend]`: where the job runs."""

    compute_pool: str | None = None
    """Name of a pool; absent means the one for `[compute] gpu_type`, else the server's default pool."""
    topology_id: str | None = None
    """A way to use the pool, as named in `pools.toml`."""


class Compute(Section):
    """`[compute]`: the devices asked for, by which the operator's table chooses a pool."""

    gpu_type: str | None = None
    """Chooses the pool whose `gpu_types` (in `pools.toml`) name it, where `[backend] compute_pool` is absent."""
    gpu_count: int | None = Field(default=None, ge=0)
    """Chooses, with `gpu_type`, a pool whose `gpu_types` name the pair (`"H100x8"`)."""
    nodes: Unused = None
    topology: Unused = None


def _address(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or url != url.strip():
        raise ValueError("is no address; write it like http://127.0.0.1:8790")
    return url


Address = Annotated[str, AfterValidator(_address)]
"""An http(s) URL with a host."""


class Services(Section):
    """`[services]`: addresses of what the job needs."""

    task_url: Address
    """Base URL of the task app as the workers reach it."""
    policy_url: Address | None = None
    """Base URL of the policy gateway as this task app reaches it; overrides HEADRACE_POLICY_PUBLIC_URL."""
    inference_url_form: Literal["path", "query"] | None = None
    """Where the inference URL has the session's id: in its path, or as `?cid=`, which some task apps look for.

    Absent means what the task app asks for (`inference.inference_url_form` of its `/task_info`), else `path`.
    """
    judge_url: Unused = None
    environment: Unused = None


Seed = Annotated[int, Field(ge=-(2**63), lt=2**63)]
"""A task seed: whatever 64 bits hold, as the database keeps it."""


class Evaluation(Section):
    """`[evaluation]`: how the policy is measured while it trains."""

    every_n_iters: int = Field(default=0, ge=0)
    """Evaluate after each so many iterations; 0 means never."""
    seeds: tuple[Seed, ...] = ()
    """Task seeds to play; absent means `[data] evaluation_episodes` seeds. They should not be trained on."""
    samples: int = Field(default=1, ge=1)
    """Episodes per seed."""
    temperature: float = Field(default=1.0, ge=0)
    """0 decodes greedily."""
    split: str | None = None
    """Split passed to the task app in `env.config`; absent means `[data] evaluation_split`, else the rollouts'."""
    instances: int | None = Field(default=None, ge=1)
    """Use only the first so many seeds."""


FreeTable = dict[str, Any]
"""A table whose keys are the user's own."""


def _sampling_values(table: FreeTable) -> FreeTable:
    """Refuses, in a table that is passed on, values of the two keys that act here, too."""
    temperature, max_tokens = table.get("temperature"), table.get("max_tokens")
    if temperature is not None and (not _is_number(temperature) or not 0 <= temperature < float("inf")):
        raise ValueError(f"temperature = {temperature!r} must be a number of at least 0")
    if max_tokens is not None and (
        not isinstance(max_tokens, int) or isinstance(max_tokens, bool) or max_tokens < 1
    ):
        raise ValueError(f"max_tokens = {max_tokens!r} must be a whole number of at least 1")
    return table


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


PolicyConfig = Annotated[FreeTable, AfterValidator(_sampling_values)]
"""A free table in which `temperature` and `max_tokens` act."""

MAX_TURNS = 10_000
"""Calls of the policy in one episode, at most."""


def _tag_values(tags: Any) -> Any:
    if isinstance(tags, dict):
        for name, value in tags.items():
            if not isinstance(value, str | int | float | bool):
                raise ValueError(f"{name} = {value!r} must be text, a number, true or false")
    return tags


Tags = Annotated[dict[str, str | int | float | bool], BeforeValidator(_tag_values)]
"""A free table of plain values, by which jobs are found again."""


class Episode(Section):
    """`[rollout]`: the episode as the task app plays it."""

    env_name: str | None = None
    """Name of the environment, passed to the task app."""
    policy_name: str | None = None
    """Name of the policy, passed to the task app."""
    env_config: FreeTable = {}
    """Passed to the task app as `env.config`."""
    policy_config: PolicyConfig = {}
    """Passed to the task app as `policy.config`; `temperature` and `max_tokens` act as defaults of `[policy]`."""
    ops: tuple[str, ...] = ()
    """One episode's plan; absent means `agent`, `env` in turn, `max_turns` times. Shorter plans are cycled."""
    max_turns: int | None = Field(default=None, ge=1, le=MAX_TURNS)
    """Calls of the policy in one episode; absent means 1."""


class Reply(Section):
    """`[policy]`: how the policy is asked."""

    max_tokens: int | None = Field(default=None, ge=1)
    """Bound of one reply."""
    max_model_len: int | None = Field(default=None, ge=16)
    """Longest sequence the engine holds; absent means the model's own limit."""
    history: Literal["exact", "template"] = "exact"
    """`exact` keeps the tokens of earlier turns; `template` renders the template's own history anew."""
    constrained: Literal[False] = False
    """Grammar-constrained decoding samples from another distribution than is scored."""
    top_p: Literal[1] | None = None
    """Off: tokens are sampled from the whole softmax."""
    top_k: Literal[-1, 0] | None = None
    """Off: tokens are sampled from the whole softmax."""
    repetition_penalty: Literal[1] | None = None
    """Off: tokens are sampled from the whole softmax."""
    stop_sequences: tuple[()] | None = None
    """None: a reply ends at the model's own end token."""


def max_tokens_asked(policy: Reply, rollout: Episode) -> int | None:
    """Bound of one reply: `[policy] max_tokens`, else that of `[rollout.policy_config]`."""
    asked = rollout.policy_config.get("max_tokens")
    return policy.max_tokens or (int(asked) if asked else None)


def refuse_reply_without_prompt(policy: Reply, rollout: Episode) -> None:
    """Raise ValueError when a reply may fill all that the engine holds."""
    asked, longest = max_tokens_asked(policy, rollout), policy.max_model_len
    if asked is not None and longest is not None and asked >= longest:
        key = "[policy]" if policy.max_tokens else "[rollout.policy_config]"
        raise ValueError(
            f"{key} max_tokens = {asked} leaves no room for a prompt in [policy] max_model_len = {longest}; "
            "lower the first"
        )
