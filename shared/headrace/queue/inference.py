"""How the API's inference calls and the owner of the engine find each other.

    API: a call                              owner: a thread of the evaluator
    writes a Wish, again each second   ->    takes the slot when no job holds it or waits for it
    reads the Offer                    <-    serves the wish's model, writes the Offer each look
    marks itself in flight, reads the Offer
    once more, opens a session, calls

Nothing here outlives who wrote it: wishes and marks carry the time until which they count, the offer
expires, and the slot is a lease. Times are Unix times of the hosts' clocks, which NTP keeps together.
"""

from __future__ import annotations

import hashlib
import json
import time

import redis

from headrace.contracts.base import Contract
from headrace.queue import names

WISH_S = 4.0
"""A wish that its call has not written again for so long is forgotten."""
OFFER_S = 5
"""An offer that its owner has not written again for so long is gone."""
IN_FLIGHT_S = 12.0
"""A call that has not said again that it runs for so long does not count."""
FAILURE_S = 15
"""A model that could not be served is not tried again for so long."""


class Wish(Contract):
    """One waiting call: the model that it needs."""

    call_id: str
    name: str
    """Of the model, as asked for."""
    folder: str
    engine_args: tuple[str, ...] = ()
    asked_at: float
    """Unix time; who asked first is served first."""
    alive_until: float

    @property
    def key(self) -> str:
        """Equal for calls that one loaded model can answer."""
        facts = json.dumps([self.folder, *self.engine_args])
        return hashlib.sha256(facts.encode()).hexdigest()[:16]


class Offer(Contract):
    """What the owner serves, or why it serves nothing."""

    key: str | None = None
    """Of the wishes that it serves; None while it holds no engine."""
    serve_id: str = ""
    timeline: int = 0
    """Of the sessions, on the job `names.inference_job(pool)`."""
    is_open: bool = False
    """Whether new calls may begin."""
    gives_way_to: str | None = None
    """The job that waits for the engine."""


class InferenceBoard:
    """The owner's side: reads wishes and calls in flight, writes the offer."""

    def __init__(self, client: redis.Redis, pool: str, slot: int) -> None:
        self._client, self._pool, self._slot = client, pool, slot
        self._timeline = names.timeline(names.inference_job(pool))

    def wishes(self) -> list[Wish]:
        """Living wishes, oldest first; dead ones are deleted."""
        key, now = names.inference_wishes(self._pool, self._slot), time.time()
        rows: dict[bytes, bytes] = self._client.hgetall(key)  # type: ignore[assignment]
        wishes = [Wish.model_validate_json(row) for row in rows.values()]
        if dead := [wish.call_id for wish in wishes if wish.alive_until < now]:
            self._client.hdel(key, *dead)
        living = [wish for wish in wishes if wish.alive_until >= now]
        return sorted(living, key=lambda wish: (wish.asked_at, wish.call_id))

    def n_in_flight(self) -> int:
        """Calls that run; those whose API has died have lapsed."""
        key = names.inference_calls(self._pool, self._slot)
        self._client.zremrangebyscore(key, "-inf", time.time())
        return int(self._client.zcard(key))  # type: ignore[arg-type]

    def used_at(self) -> float:
        """Unix time at which the last call began; 0 when that was long ago."""
        return float(self._client.get(names.inference_used(self._pool, self._slot)) or 0)  # type: ignore[arg-type]

    def offer(self, offer: Offer) -> None:
        """Write the offer anew; sessions of its timeline are admitted for as long as it is."""
        pipe = self._client.pipeline(transaction=False)
        pipe.set(names.inference_offer(self._pool, self._slot), offer.model_dump_json(), ex=OFFER_S)
        if offer.key is not None:
            # Longer than the offer, so that an owner that waits for the gateway loses no session.
            pipe.set(self._timeline, offer.timeline, ex=30 * OFFER_S)
        pipe.execute()

    def withdraw(self) -> None:
        """No call begins any more, under whatever session."""
        pipe = self._client.pipeline(transaction=False)
        pipe.delete(names.inference_offer(self._pool, self._slot))
        pipe.delete(self._timeline)
        pipe.execute()

    def failed(self, wish: Wish, reason: str) -> None:
        """Tell whoever waits for this model, and who asks for it soon, why it is not served."""
        self._client.set(names.inference_failure(self._pool, self._slot, wish.key), reason, ex=FAILURE_S)

    def has_failed(self, wish: Wish) -> bool:
        return bool(self._client.exists(names.inference_failure(self._pool, self._slot, wish.key)))
