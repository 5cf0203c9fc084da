"""The owner of the engine where the API answers with trained models. Imports no torch.

It is a thread of the evaluator's process. It takes the slot only when no job holds it and none waits
for it, serves the model that was asked for first, and gives the slot up as soon as a job waits. The
slot is a lease, so nothing of this outlives the process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import redis
from sqlalchemy.exc import OperationalError

from headrace import log
from headrace.artifacts.model_folder import max_model_len
from headrace.contracts.policy import EngineState, PolicyVersion, ServeSpec
from headrace.errors import HeadraceError, StaleTimeline
from headrace.queue import names
from headrace.queue.inference import InferenceBoard, Offer, Wish
from headrace.queue.slots import SlotClaim
from headrace.store import jobs
from headrace_trainer.context import Context
from headrace_trainer.policy_link import PolicyLink

LOOK_S = 0.25
ASK_SQL_EVERY_S = 0.5
GIVE_WAY_S = 5.0
"""Calls in flight get so long to end when a job waits."""
TURN_S = 5.0
"""A model that is in use is served for at least so long while another is waited for."""
CHANGE_S = 30.0
"""Calls in flight get so long to end when another model is waited for."""
NEEDS_ENGINE = ("rl", "eval")
"""SFT trains without the engine, so such a job waits for nothing that inference holds."""

logger = log.get(__name__)


class _Over(Exception):
    """The slot has to be given up now."""


@dataclass
class _Served:
    """The model that the engine has been asked for."""

    spec: ServeSpec
    key: str
    fence: int
    since: float
    """Unix time from which the engine was ready for it."""
    last_use: float
    """Unix time at which it was last seen to be used."""
    is_broken: bool = False

    def offer(self, is_open: bool) -> Offer:
        return Offer(key=self.key, serve_id=self.spec.serve_id, timeline=self.fence, is_open=is_open)


class InferenceOwner:
    """Serves the wishes of one (pool, slot) until `stopping` is set."""

    def __init__(self, context: Context, stopping: threading.Event) -> None:
        settings = context.settings
        self._context, self._stopping = context, stopping
        self._pool, self._slot_number = settings.pool, settings.slot
        self._board = InferenceBoard(context.redis, settings.pool, settings.slot)
        self._asked_sql_at, self._waiting_job = 0.0, None

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.look()
                pause_s = LOOK_S
            except (redis.RedisError, OperationalError) as error:
                logger.warning("dependency.unavailable", error=str(error))
                pause_s = 2.0
            except Exception:
                # Evaluations of the same process must not suffer, and the next call may be answerable.
                logger.exception("inference.broke")
                pause_s = 2.0
            self._stopping.wait(pause_s)

    def look(self) -> None:
        """Where a call waits and the engine is free: own it until a job needs it or nobody calls."""
        wishes = self._untried()
        if not wishes:
            return
        if (job_id := self._job_that_waits()) is not None:
            self._board.offer(Offer(gives_way_to=job_id))
            return
        slot = SlotClaim(self._context.redis, self._pool, self._slot_number, names.inference_job(self._pool))
        if not slot.try_acquire():
            return
        try:
            self._own(slot)
        finally:
            slot.release()

    def _own(self, slot: SlotClaim) -> None:
        logger.info("inference.began", fence=slot.fence)
        served: _Served | None = None
        n_served = 0
        try:
            while served is None or not self._is_idle(served):
                self._check(slot)
                wish = self._next_model(served)
                if wish is not None:
                    if served is not None:
                        self._drain(served.offer(False), CHANGE_S, lambda: self._check(slot))
                    served = self._load(slot, wish, n_served)
                    n_served += 1
                elif served is None:
                    break
                else:
                    self._board.offer(served.offer(self._is_served(slot, served)))
                self._stopping.wait(LOOK_S)
        except _Over:
            if served is not None and not slot.is_lost:
                self._drain(self._giving_way(served), GIVE_WAY_S, lambda: None)
        except StaleTimeline as error:
            logger.warning("inference.slot_lost", reason=error.message)
        finally:
            self._board.withdraw()
            if self._waiting_job is not None:
                self._board.offer(Offer(gives_way_to=self._waiting_job))
            logger.info("inference.ended", gave_way_to=self._waiting_job)

    def _giving_way(self, served: _Served) -> Offer:
        return served.offer(False).model_copy(update={"gives_way_to": self._waiting_job})

    def _next_model(self, served: _Served | None) -> Wish | None:
        """The wish whose model has to be loaded now, if any: the oldest for another model, in its turn."""
        wishes = self._untried()
        other = next((wish for wish in wishes if served is None or wish.key != served.key), None)
        if served is None:
            return other
        is_in_use = any(wish.key == served.key for wish in wishes) or self._board.n_in_flight() > 0
        if is_in_use:
            served.last_use = time.time()
        return None if is_in_use and time.time() - served.since < TURN_S else other

    def _load(self, slot: SlotClaim, wish: Wish, number: int) -> _Served | None:
        """Have the engine serve the wish's model; None, with the reason told, when it cannot."""
        serve_id = f"{names.inference_job(self._pool)}.f{slot.fence}.{number}"
        link = PolicyLink(self._context, slot, names.inference_job(self._pool), serve_id)
        try:
            folder, limit = Path(wish.folder), self._context.settings.inference_max_model_len
            version = PolicyVersion(timeline=slot.fence, n=number)
            spec = link.desire(folder, version, min(max_model_len(folder), limit), wish.engine_args)
            served = _Served(spec, wish.key, slot.fence, time.time(), time.time())
            logger.info("inference.loading", model=wish.name, serve_id=serve_id)
            link.wait_until_served(spec, lambda: self._tick(slot, served))
        except StaleTimeline:
            raise
        except HeadraceError as error:
            logger.warning("inference.failed", model=wish.name, reason=error.message)
            self._board.failed(wish, error.message)
            return None
        finally:
            link.close()
        served.since = served.last_use = time.time()
        return served

    def _tick(self, slot: SlotClaim, served: _Served) -> None:
        self._check(slot)
        self._board.offer(served.offer(False))

    def _check(self, slot: SlotClaim) -> None:
        """Raise _Over when the slot is no longer ours to hold."""
        if self._stopping.is_set() or slot.is_lost or self._job_that_waits() is not None:
            raise _Over

    def _drain(self, offer: Offer, within_s: float, check: Callable[[], None]) -> None:
        """Let no call begin, and wait until those that run have ended, bounded."""
        deadline = time.monotonic() + within_s
        self._board.offer(offer)
        while self._board.n_in_flight() and time.monotonic() < deadline and not self._stopping.is_set():
            check()
            time.sleep(LOOK_S / 2)
            self._board.offer(offer)

    def _is_served(self, slot: SlotClaim, served: _Served) -> bool:
        """Whether the engine answers for `served`; a gateway that was killed comes back and serves it again."""
        status = slot.status()
        if status is None or (status.serve_id, status.fence) != (served.spec.serve_id, served.fence):
            return False
        if status.state is EngineState.FAILED:
            served.is_broken = True  # let go; who asks again has it tried anew
        return status.state is EngineState.READY

    def _is_idle(self, served: _Served) -> bool:
        last_use = max(served.last_use, self._board.used_at())
        return served.is_broken or time.time() - last_use > self._context.settings.inference_idle_s

    def _untried(self) -> list[Wish]:
        """Living wishes whose model has not just failed to load."""
        return [wish for wish in self._board.wishes() if not self._board.has_failed(wish)]

    def _job_that_waits(self) -> str | None:
        """The first job of the pool that waits for the engine, as SQL has it now or had it a moment ago."""
        if time.monotonic() - self._asked_sql_at > ASK_SQL_EVERY_S:
            with self._context.store.read() as session:
                waiting = jobs.claimable(session, self._pool, NEEDS_ENGINE)
            self._waiting_job = waiting[0] if waiting else None
            self._asked_sql_at = time.monotonic()
        return self._waiting_job


@contextmanager
def owning(make_context: Callable[[], Context]) -> Iterator[None]:
    """Serve inference in a thread for as long as the block runs; the slot is free when it ends."""
    stopping = threading.Event()
    context = make_context()
    thread = threading.Thread(target=InferenceOwner(context, stopping).run, name="inference", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()
        context.store.close()
        context.redis.close()
