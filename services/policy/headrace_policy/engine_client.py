"""What the gateway asks of its engine over HTTP: tokens in, tokens out, and the swap of weights."""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from headrace.contracts.base import logprobs, token_ids
from headrace.contracts.policy import VersionSpan
from headrace.errors import BadRequest, Unavailable
from headrace_policy.engine import SERVED_NAME
from headrace_policy.versions import spans_of

IMPOSSIBLE_LOGPROB = -9000.0
"""The engine writes -9999 for minus infinity; nothing sampled can have that."""
CONTROL_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Sampled:
    """What the engine drew: one log-probability and one version per token."""

    token_ids: array
    logprobs: array
    spans: tuple[VersionSpan, ...]
    finish_reason: str


class EngineClient:
    """One engine. Errors: Unavailable when it fails, BadRequest when it refuses the request."""

    def __init__(self, base_url: str, http: aiohttp.ClientSession) -> None:
        self._base_url, self._http = base_url, http

    async def is_healthy(self) -> bool:
        try:
            async with self._http.get(
                f"{self._base_url}/health", timeout=aiohttp.ClientTimeout(total=10)
            ) as answer:
                return answer.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def generate(
        self, prompt_ids: Sequence[int], parameters: dict[str, Any], timeout_s: float
    ) -> Sampled:
        body = {"token_ids": list(prompt_ids), "sampling_params": parameters}
        reply = await self._post("/inference/v1/generate", body, timeout_s)
        return parse_generated(reply)

    async def derender(
        self, prompt_ids: Sequence[int], reply_ids: Sequence[int], request: dict[str, Any], timeout_s: float
    ) -> dict[str, Any]:
        """The assistant message that the engine's own parsers read from `reply_ids` (no stop token)."""
        choice = {"index": 0, "token_ids": list(reply_ids), "finish_reason": "stop"}
        body = {
            "model": SERVED_NAME,
            "generate_response": {"choices": [choice], "prompt_token_ids": list(prompt_ids)},
            "chat_request": request,
        }
        reply = await self._post("/v1/chat/completions/derender", body, timeout_s)
        return reply["choices"][0]["message"]

    async def pause(self) -> None:
        """Freeze requests in flight and drop the prefix cache; they go on after `resume`."""
        await self._post("/pause?mode=keep&clear_cache=true", None, CONTROL_TIMEOUT_S)

    async def reload_weights(self, folder: str) -> None:
        call = {"method": "reload_weights", "kwargs": {"weights_path": folder}}
        await self._post("/collective_rpc", call, CONTROL_TIMEOUT_S)

    async def set_version(self, label: str) -> None:
        await self._post("/update_weight_version", {"new_version": label}, CONTROL_TIMEOUT_S)

    async def resume(self) -> None:
        await self._post("/resume", None, CONTROL_TIMEOUT_S)

    async def _post(self, path: str, body: dict[str, Any] | None, timeout_s: float) -> dict[str, Any]:
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        try:
            async with self._http.post(self._base_url + path, json=body, timeout=timeout) as answer:
                raw = await answer.read()
        except TimeoutError as error:
            raise Unavailable(f"the engine did not answer {path} within {timeout_s:.0f} s") from error
        except aiohttp.ClientError as error:
            raise Unavailable(f"the engine does not answer {path}: {type(error).__name__}") from error
        if answer.status >= 400:
            _raise_refusal(path, answer.status, raw)
        try:
            return json.loads(raw)
        except json.JSONDecodeError as error:
            raise Unavailable(f"the engine answered {path} with something other than JSON") from error


def _raise_refusal(path: str, status: int, raw: bytes) -> None:
    try:
        message = json.loads(raw)["error"]["message"]
    except (json.JSONDecodeError, KeyError, TypeError):
        message = raw[:300].decode(errors="replace")
    if status in (400, 422):
        raise BadRequest(f"the engine refuses {path}: {message}")
    raise Unavailable(f"the engine answered {path} with {status}: {message}")


def parse_generated(reply: dict[str, Any]) -> Sampled:
    """Check a generate response: one finite logprob and one version per token, nothing padded."""
    try:
        choice = reply["choices"][0]
        ids = choice["token_ids"] or []
        content = (choice.get("logprobs") or {}).get("content") or []
        finish_reason = choice["finish_reason"]
    except (KeyError, IndexError, TypeError) as error:
        raise Unavailable(f"the engine's answer lacks {error}") from error
    if finish_reason not in ("stop", "length"):
        raise Unavailable(f"the engine gave up on the request (finish reason {finish_reason!r})")
    if not ids:
        raise Unavailable("the engine sampled no token")
    if [entry["token_id"] for entry in content] != ids:
        raise Unavailable(
            f"the engine gave {len(content)} logprobs for {len(ids)} tokens, or for other tokens"
        )
    values = [entry["logprob"] for entry in content]
    for position, value in enumerate(values):
        if not isinstance(value, int | float) or not math.isfinite(value) or value <= IMPOSSIBLE_LOGPROB:
            raise Unavailable(f"the engine gave logprob {value} for sampled token {position}")
    return Sampled(
        token_ids=token_ids(ids),
        logprobs=logprobs(values),
        spans=spans_of(choice.get("weight_versions"), len(ids)),
        finish_reason=finish_reason,
    )
