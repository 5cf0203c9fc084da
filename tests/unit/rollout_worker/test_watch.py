"""Deadlines and looks of a rollout's waits."""

from __future__ import annotations

import pytest

from headrace_rollout_worker import watch as watch_module
from headrace_rollout_worker.watch import Cancelled, DeadlinePassed, Watch


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(watch_module.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(watch_module.time, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_slices_add_up_to_the_deadline_and_no_further(monkeypatch):
    clock = Clock(monkeypatch)
    watch, waited = Watch(2.5), []
    for _ in range(3):
        waited.append(watch.slice_s())
        clock.sleep(waited[-1])
    assert waited == [1.0, 1.0, 0.5]
    with pytest.raises(DeadlinePassed, match=r"2\.5 s"):
        watch.slice_s()
    assert watch.remaining_s == 0.0


def test_it_looks_once_a_second_however_often_it_is_asked(monkeypatch):
    clock, looks = Clock(monkeypatch), []
    watch = Watch(100, lambda: looks.append(clock.now))
    for _ in range(50):
        watch.slice_s()
        clock.sleep(0.1)
    assert len(looks) == 4


def test_a_pause_ends_when_a_look_says_so(monkeypatch):
    clock = Clock(monkeypatch)

    def look() -> None:
        raise Cancelled("the job was cancelled")

    with pytest.raises(Cancelled):
        Watch(100, look).pause(60)
    assert clock.now < 103
