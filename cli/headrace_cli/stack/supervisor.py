"""Keeps the stack alive: starts its processes in order, shows their readiness, restarts what dies, stops all.

One thread does everything but the probes, which wait on the network and run on a small pool.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import Unavailable
from headrace_cli.stack.announce import Announcer
from headrace_cli.stack.backoff import Backoff
from headrace_cli.stack.child import Child, State, adopt_orphans
from headrace_cli.stack.logs import log_file, rotate
from headrace_cli.stack.probes import HttpProbe
from headrace_cli.stack.specs import ProcessSpec
from headrace_cli.stack.state import ProcessState, StackState, write_state

TICK_S = 0.1
STOP_GRACE_S = (7.0, 5.0, 3.0)
"""How long each stage of a stop may take before its groups are killed."""


class NotReadyInTime(Unavailable):
    """The shared deadline passed before every process was ready."""

    exit_code = 3


@dataclass(frozen=True)
class Pace:
    """The supervisor's times, in seconds."""

    ready_within: float = 120.0
    """One deadline for all processes together."""
    probe_every: float = 0.25
    """While a process starts."""
    watch_every: float = 5.0
    """Once it was ready."""
    first_backoff: float = 1.0
    longest_backoff: float = 30.0
    stop_grace: tuple[float, ...] = STOP_GRACE_S


class Supervisor:
    """Runs `specs` until a signal comes."""

    def __init__(
        self,
        specs: Sequence[ProcessSpec],
        home: Path,
        announce: Announcer,
        addresses: dict[str, str],
        pace: Pace | None = None,
    ) -> None:
        self._home = home
        self._announce = announce
        self._addresses = addresses
        self._pace = pace or Pace()
        self._children = [Child(spec, log_file(home, spec.name), self._backoff()) for spec in specs]
        self._by_name = {child.spec.name: child for child in self._children}
        self._probes: dict[str, tuple[Future[str | None], int]] = {}
        self._probe_at: dict[str, float] = {}
        self._began = time.time()
        self._signals = 0
        self._all_were_ready = False

    def run(self) -> None:
        """Start everything and keep it running until SIGINT or SIGTERM, then stop it.

        Raises NotReadyInTime (after stopping) when the deadline passes first.
        """
        adopt_orphans()
        for child in self._children:
            rotate(child.log)
        deadline = time.monotonic() + self._pace.ready_within
        with _signals(self._on_signal), ThreadPoolExecutor(len(self._children), "probe") as pool:
            try:
                while not self._signals:
                    self._tick(pool)
                    if not self._all_were_ready and time.monotonic() > deadline:
                        raise NotReadyInTime(self._late())
                    time.sleep(TICK_S)
            finally:
                self._stop()

    def _tick(self, pool: ThreadPoolExecutor) -> None:
        before = self._rows()
        for child in self._children:
            self._bury_if_dead(child)
            self._start_if_due(child)
            self._probe_if_due(child, pool)
        late = {c.spec.name: c.reason or str(c.state) for c in self._children if not c.was_ready}
        if not late and not self._all_were_ready:
            self._all_were_ready = True
            self._announce.stack_ready(self._addresses, time.time() - self._began)
        if self._rows() != before:
            self._save()
            if late:
                self._announce.waiting(late)

    def _bury_if_dead(self, child: Child) -> None:
        pid = child.pid
        how = child.reap()
        if how is None or pid is None:
            return
        _kill_orphans({c.pid for c in self._children if c.pid})
        child.restarts += 1
        said = child.last_words()
        self._announce.died(child.spec.name, pid, how, said, child.backoff_s, str(child.log))

    def _start_if_due(self, child: Child) -> None:
        waiting = child.state is State.WAITING and all(
            self._by_name[name].was_ready for name in child.spec.after
        )
        backed_off = child.state is State.RESTARTING and time.monotonic() >= child.restart_at
        if waiting or backed_off:
            child.start()
            self._probe_at[child.spec.name] = time.monotonic()
            self._announce.started(child.spec.name, child.pid or 0)

    def _probe_if_due(self, child: Child, pool: ThreadPoolExecutor) -> None:
        name, now = child.spec.name, time.monotonic()
        running = self._probes.get(name)
        if running is not None and running[0].done():
            answer, asked_pid = self._probes.pop(name)
            interval = self._pace.probe_every
            if child.pid == asked_pid:
                self._take_in(child, answer.result())
                if child.state is State.READY:
                    interval = self._pace.watch_every
            self._probe_at[name] = now + interval
        elif running is None and child.pid is not None and now >= self._probe_at[name]:
            self._probes[name] = (pool.submit(child.spec.probe, child.pid), child.pid)

    def _take_in(self, child: Child, reason: str | None) -> None:
        changed = child.observe(reason)
        if changed is State.READY:
            took = time.monotonic() - child.started_at
            self._announce.ready(child.spec.name, child.pid or 0, child.spec.url, took)
        elif changed is State.UNREADY:
            self._announce.unready(child.spec.name, child.reason)

    def _stop(self) -> None:
        """Stop stage by stage; what outlives its stage's grace, or a second signal, is killed."""
        self._announce.stopping()
        asked = self._signals
        for stage in sorted({child.spec.stop_stage for child in self._children}):
            members = [child for child in self._children if child.spec.stop_stage == stage]
            for child in members:
                child.terminate()
            until = time.monotonic() + self._pace.stop_grace[stage]
            while not all(child.has_ended() for child in members):
                if time.monotonic() > until or self._signals > max(asked, 1):
                    late = [child.spec.name for child in members if not child.has_ended()]
                    self._announce.killed(late)
                    break
                time.sleep(TICK_S / 2)
            for child in members:
                child.bury()
            self._save()
        _kill_orphans(set())
        self._announce.stopped()

    def _on_signal(self) -> None:
        self._signals += 1

    def _backoff(self) -> Backoff:
        return Backoff(self._pace.first_backoff, self._pace.longest_backoff)

    def _late(self) -> str:
        late = [child for child in self._children if not child.was_ready]
        each = "; ".join(f"{c.spec.name}: {c.reason or c.state} (log: {c.log})" for c in late)
        return f"not ready within {self._pace.ready_within:g} s: {each}"

    def _rows(self) -> tuple[ProcessState, ...]:
        return tuple(
            ProcessState(
                name=c.spec.name,
                state=str(c.state),
                pid=c.pid,
                url=c.spec.url,
                restarts=c.restarts,
                since=c.since,
                reason=c.reason,
                log=str(c.log),
                health=c.spec.probe.url if isinstance(c.spec.probe, HttpProbe) else None,
            )
            for c in self._children
        )

    def _save(self) -> None:
        state = StackState(str(self._home), os.getpid(), self._began, self._addresses, self._rows())
        with suppress(OSError):  # a full disk must neither end the stack nor keep it from stopping
            write_state(self._home, state)


def _kill_orphans(children: set[int]) -> None:
    """Kill descendants that were handed to us because their own parent died, and reap them."""
    import psutil

    for process in psutil.Process().children():
        if process.pid in children:
            continue
        for descendant in [*process.children(recursive=True), process]:
            with suppress(psutil.NoSuchProcess):
                descendant.kill()
        with suppress(ChildProcessError):
            os.waitpid(process.pid, 0)


@contextmanager
def _signals(on_signal: Callable[[], None]) -> Iterator[None]:
    """Count stop signals instead of dying of them, for as long as the block runs."""
    wanted = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # `nohup headrace up` outlives its terminal
        wanted.append(signal.SIGHUP)
    before = {number: signal.signal(number, lambda *_: on_signal()) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
