"""Who decides what a slot's engine serves: a lease, a fence, and the desired state written under it."""

from __future__ import annotations

import time
from collections.abc import Callable

import redis

from headrace.contracts.policy import EngineState, PolicyStatus, ServeSpec
from headrace.errors import JobFailed, StaleTimeline
from headrace.queue import names
from headrace.queue.leases import Lease
from headrace.queue.scripts import source

SLOT_LEASE_S = 15.0


class SlotClaim:
    """Ownership of one (pool, slot). `fence` outranks that of every earlier owner."""

    def __init__(self, client: redis.Redis, pool: str, slot: int, owner: str) -> None:
        self._client, self._pool, self._slot = client, pool, slot
        self._lease = Lease(client, names.slot_owner(pool, slot), SLOT_LEASE_S, owner)
        self.fence = 0

    def try_acquire(self) -> bool:
        if not self._lease.try_acquire():
            return False
        try:
            self.fence = int(self._client.incr(names.slot_fence(self._pool, self._slot)))  # type: ignore[arg-type]
        except redis.RedisError:
            self._lease.release()  # else its thread would keep the slot for nobody
            raise
        return True

    def holder(self) -> str | None:
        """Label of the present owner (a job id), for the reason shown to who waits."""
        token = self._client.get(names.slot_owner(self._pool, self._slot))
        return token.decode().rsplit("/", 1)[0] if token else None  # type: ignore[union-attr]

    @property
    def is_lost(self) -> bool:
        return self._lease.is_lost

    def serve(self, spec: ServeSpec) -> None:
        """Write the desired state; raises StaleTimeline when another owner has come."""
        written = self._client.eval(
            source("set_fenced"), 2,
            names.slot_fence(self._pool, self._slot), names.slot_desired(self._pool, self._slot),
            str(self.fence), spec.model_dump_json(),
        )  # fmt: skip
        if not written:
            raise StaleTimeline(f"slot {self._pool}/{self._slot} has a newer owner")

    def status(self) -> PolicyStatus | None:
        """What the gateway last reported; None when no gateway is alive."""
        raw = self._client.get(names.slot_status(self._pool, self._slot))
        return PolicyStatus.model_validate_json(raw) if raw else None  # type: ignore[arg-type]

    def wait_until_served(self, spec: ServeSpec, timeout_s: float, tick: Callable[[], None]) -> None:
        """Wait until the engine serves `spec`; `tick` is called between looks and may raise to stop."""
        deadline = time.monotonic() + timeout_s
        while True:
            status = self.status()
            # A report on another version is older than the wish for this one.
            if status is not None and (status.serve_id, status.fence, status.version) == (
                spec.serve_id, self.fence, spec.version,
            ):  # fmt: skip
                if status.state is EngineState.READY:
                    return
                if status.state is EngineState.FAILED:
                    raise JobFailed(f"the policy engine could not serve {spec.model_path}: {status.reason}")
            if time.monotonic() > deadline:
                seen = "no gateway reports" if status is None else f"the engine is {status.state}"
                raise JobFailed(f"the policy did not serve {spec.serve_id} within {timeout_s:.0f} s ({seen})")
            tick()
            time.sleep(0.2)

    def release(self) -> None:
        self._lease.release()
