"""The trainer's side of the policy: what the slot's engine serves, publishes, and the probe. No torch.

A publish that only claims to have happened is the fault this module exists to catch: after each one
the engine's answer to a fixed prompt is compared with the trainer's own logprobs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx

from headrace import log
from headrace.artifacts.model_folder import architecture_hash, max_model_len
from headrace.contracts.base import token_ids
from headrace.contracts.policy import (
    PolicyVersion,
    ProbeRequest,
    ProbeResult,
    PublishRequest,
    ServeSpec,
)
from headrace.errors import ConfigError, JobFailed, StaleTimeline, Unavailable
from headrace.queue.slots import SlotClaim
from headrace_trainer.context import Context
from headrace_trainer.proof import Proof, gap

ENGINE_START_S = 900.0
REPAIR_S = 300.0
"""A gateway that went away, or whose engine starts anew, is waited for so long."""
REPAIR_PAUSE_S = 2.0
GONE = (httpx.NetworkError, httpx.TimeoutException, httpx.RemoteProtocolError)
"""What a request meets when the gateway is killed or starts; anything else would fail again."""
PROBE_LIMITS = {"float32": 1e-4, "bfloat16": 5e-2, "float16": 5e-2}
"""Largest |engine - trainer| logprob of a probe token, by number format of the engine."""


logger = log.get(__name__)


class PolicyLink:
    """Control of a slot's engine for one job, under the slot's fence.

    A gateway that is killed costs the job a wait: the desired state is written again, and the gateway
    finds it when it comes back. `on_repair` gets the reason of each such wait.
    """

    def __init__(
        self,
        context: Context,
        slot: SlotClaim,
        job_id: str,
        serve_id: str,
        on_repair: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self._context, self._slot, self._on_repair = context, slot, on_repair
        self._job_id, self.serve_id = job_id, serve_id
        self._http = httpx.Client(
            base_url=context.settings.policy_url,
            headers={"Authorization": f"Bearer {context.settings.trainer_token}"},
            timeout=httpx.Timeout(120, connect=5),
        )

    def desire(
        self,
        folder: Path,
        version: PolicyVersion,
        model_len: int | None,
        model_args: tuple[str, ...] = (),
    ) -> ServeSpec:
        """Write the desired state: this folder's weights, as `version`.

        `model_args` are the engine arguments of the model (its parsers); they win over the topology's.
        """
        longest = max_model_len(folder)
        if model_len is not None and model_len > longest:
            raise ConfigError(
                f"[policy] max_model_len = {model_len} is above the model's own limit of {longest}; lower it"
            )
        spec = ServeSpec(
            serve_id=self.serve_id,
            job_id=self._job_id,
            model_path=str(folder),
            architecture_hash=architecture_hash(folder),
            max_model_len=model_len or longest,
            dtype=self._context.topology.dtype,
            # Of two equal options the engine takes the later one.
            engine_args=(*self._context.topology.engine_args, *model_args),
            version=version,
            fence=self._slot.fence,
        )
        self._slot.serve(spec)
        return spec

    def wait_until_served(self, spec: ServeSpec, tick: Callable[[], None]) -> None:
        """Wait for the engine, and hold it to the proof where the weights come with one."""
        self._slot.wait_until_served(spec, ENGINE_START_S, tick)
        proof = Proof.read(Path(spec.model_path))
        if proof is not None and len(proof.prompt_ids) + len(proof.sampled_ids) <= spec.max_model_len:
            result = self.probe(spec, proof.prompt_ids, len(proof.sampled_ids), tick)
            proof.check(result, PROBE_LIMITS[spec.dtype])

    def publish(
        self, spec: ServeSpec, folder: Path, version: PolicyVersion, tick: Callable[[], None]
    ) -> ServeSpec:
        """Swap the weights in place and return what is served then; requests in flight go on under them."""
        wanted = spec.model_copy(update={"model_path": str(folder), "version": version})
        request = PublishRequest(
            serve_id=self.serve_id, fence=self._slot.fence, version=version, weights_path=str(folder)
        )
        try:
            self._post("/admin/publish", request.model_dump(mode="json"))
        except Unavailable as error:
            self._repair(wanted, error, time.monotonic() + REPAIR_S, tick)
        return wanted

    def probe(
        self, spec: ServeSpec, prompt_ids: Sequence[int], n_tokens: int, tick: Callable[[], None]
    ) -> ProbeResult:
        """Have the engine that serves `spec` continue the prompt."""
        request = ProbeRequest(
            serve_id=self.serve_id,
            fence=self._slot.fence,
            prompt_ids=token_ids(prompt_ids),
            n_tokens=n_tokens,
        )
        deadline = time.monotonic() + REPAIR_S
        while True:
            try:
                return ProbeResult.model_validate(self._post("/admin/probe", request.model_dump(mode="json")))
            except Unavailable as error:
                self._repair(spec, error, deadline, tick)

    def _repair(self, spec: ServeSpec, error: Unavailable, deadline: float, tick: Callable[[], None]) -> None:
        """Ask for `spec` once more and wait until it is served; raises JobFailed behind `deadline`."""
        if time.monotonic() > deadline:
            raise JobFailed(error.message) from error
        logger.warning("policy.away", job_id=self._job_id, reason=error.message)
        self._on_repair(error.message)
        tick()
        time.sleep(REPAIR_PAUSE_S)  # a killed gateway's last report may still be read
        self._slot.serve(spec)
        self._slot.wait_until_served(spec, max(1.0, deadline - time.monotonic()), tick)

    def close(self) -> None:
        self._http.close()

    def _post(self, path: str, body: dict[str, object]) -> object:
        try:
            reply = self._http.post(path, json=body)
        except httpx.HTTPError as error:
            kind = Unavailable if isinstance(error, GONE) else JobFailed
            raise kind(
                f"the policy gateway at {self._context.settings.policy_url} did not answer {path}: {error!r}"
            ) from error
        if reply.status_code == 503:
            raise Unavailable(f"the policy gateway cannot do {path} now: {_sentence(reply)}")
        if reply.status_code == 409:
            raise StaleTimeline(f"the policy gateway refused {path}: {_sentence(reply)}")
        if reply.status_code >= 400:
            raise JobFailed(
                f"the policy gateway answered {path} with {reply.status_code}: {_sentence(reply)}"
            )
        return reply.json()


def _sentence(reply: httpx.Response) -> str:
    try:
        return reply.json()["error"]["message"]
    except (ValueError, KeyError, TypeError):
        return reply.text[:300]


def check_probe(
    result: ProbeResult, trainer_logprobs: Sequence[float], version: PolicyVersion, limit: float
) -> float:
    """Largest |engine - trainer| over the probe's tokens, cold and cached; above `limit` the publish failed."""
    worst = gap([result.cold_logprobs, result.cached_logprobs], trainer_logprobs)
    if result.version != version or not worst <= limit:
        raise JobFailed(
            f"publishing version {version} failed: the engine serves {result.version} and its logprobs of the "
            f"probe differ from the trainer's by {worst:.3g} (limit {limit:.0e})"
        )
    return worst
