"""Swapping the engine's weights without failing a request in flight, and probing that they arrived."""

from __future__ import annotations

import asyncio
import secrets
import struct
import time
from contextlib import ExitStack
from pathlib import Path

from headrace.contracts.base import logprobs, token_ids
from headrace.contracts.policy import PolicyVersion, ProbeRequest, ProbeResult
from headrace.errors import BadRequest, JobFailed, Unavailable
from headrace_policy.engine_client import EngineClient, Sampled
from headrace_policy.tied_head import reloadable
from headrace_policy.versions import label

PROBE_TIMEOUT_S = 120.0
WARM_UP_TIMEOUT_S = 600.0


def check_folder(weights_path: str) -> None:
    """Refuse a folder that an engine restart could not load."""
    folder = Path(weights_path)
    missing = [name for name in ("config.json", "tokenizer.json") if not (folder / name).is_file()]
    if not any(folder.glob("*.safetensors")):
        missing.append("*.safetensors")
    if missing:
        raise BadRequest(
            f"weights_path {weights_path} lacks {', '.join(missing)}; publish a whole model folder"
        )


async def swap(engine: EngineClient, version: PolicyVersion, weights_path: str, scratch: Path) -> float:
    """Make the weights in `weights_path` live as `version`; returns the seconds of the pause.

    Requests in flight are frozen and go on under the new weights. Raises Unavailable when the engine
    is in an unknown state afterwards and has to be restarted.
    """
    with ExitStack() as stack:
        try:
            staged = await asyncio.to_thread(stack.enter_context, reloadable(Path(weights_path), scratch))
        except (OSError, ValueError, KeyError, struct.error) as error:
            raise BadRequest(f"the weights in {weights_path} cannot be read: {error}") from error
        started = time.monotonic()
        try:
            await engine.pause()
            await engine.reload_weights(str(staged))
            await engine.set_version(label(version))
            await engine.resume()
        except BadRequest as error:
            raise Unavailable(f"the swap to version {version} failed: {error}") from error
        return time.monotonic() - started


async def warm_up(engine: EngineClient, version: PolicyVersion) -> None:
    """Label the weights and make the first, slow calls (kernels compile), one of them seeded."""
    await engine.set_version(label(version))
    parameters = {"temperature": 1.0, "max_tokens": 2, "logprobs": 0, "detokenize": False}
    for extra in ({}, {"seed": secrets.randbelow(2**31)}):
        await engine.generate([1, 2, 3], parameters | extra, WARM_UP_TIMEOUT_S)


async def probe(engine: EngineClient, request: ProbeRequest) -> ProbeResult:
    """Continue the prompt greedily, twice: cold after a publish, then from the prefix cache.

    The second shows whether the cache holds keys and values of older weights.
    """
    cold = await _greedy(engine, request)
    cached = await _greedy(engine, request)
    if cold.token_ids != cached.token_ids:
        raise JobFailed("the probe's continuation from the prefix cache differs from the cold one")
    version = cold.spans[0].version
    if any(span.version != version for span in (*cold.spans, *cached.spans)):
        raise Unavailable("the weights changed while the probe ran")
    return ProbeResult(
        version=version,
        sampled_ids=token_ids(cold.token_ids),
        cold_logprobs=logprobs(cold.logprobs),
        cached_logprobs=logprobs(cached.logprobs),
    )


async def _greedy(engine: EngineClient, request: ProbeRequest) -> Sampled:
    parameters = {"temperature": 0.0, "max_tokens": request.n_tokens, "logprobs": 0, "detokenize": False}
    return await engine.generate(request.prompt_ids, parameters, PROBE_TIMEOUT_S)
