"""Doorbells and clocks: who waits is woken, whatever came first, and time is told apart."""

from __future__ import annotations

import itertools
import os
import threading

import numpy as np
import pytest

from hts.machine import TIMES, clock_arrays
from hts.memory.doorbell import Doorbell
from hts.runtime import clock
from hts.runtime.clock import Clock
from hts.runtime.process import Child
from tests.fakes import children


def is_silent(bell: Doorbell) -> bool:
    """Whether a wait would wait; found out without waiting."""
    os.set_blocking(bell._descriptor, False)
    try:
        bell.wait()
    except BlockingIOError:
        return True
    finally:
        os.set_blocking(bell._descriptor, True)
    return False


def test_a_ring_before_the_wait_is_not_lost() -> None:
    """Who looks, finds nothing and then waits is woken by a ring in between."""
    bell = Doorbell()
    assert is_silent(bell)
    bell.ring()
    bell.wait()
    assert is_silent(bell)
    bell.close()


def test_many_rings_are_one_waking() -> None:
    """A hundred rings from four threads: one wait returns, the next one waits."""
    bell = Doorbell()

    def ring() -> None:
        for _ in range(25):
            bell.ring()

    threads = [threading.Thread(target=ring) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    bell.wait()
    assert is_silent(bell)
    bell.close()


def test_who_waits_already_is_woken() -> None:
    """A thread that is at the door, or not there yet, passes with one ring."""
    bell, passed = Doorbell(), threading.Event()

    def wait() -> None:
        bell.wait()
        passed.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert not passed.is_set()
    bell.ring()
    waiting.join()
    assert passed.is_set()
    bell.close()


def test_a_doorbell_travels_to_a_spawned_child() -> None:
    """Rung here, heard there, and the other way round; one bell is not the other."""
    ours, theirs = Doorbell(), Doorbell()
    child = Child("bell", children.answer_the_door, ours, theirs)
    try:
        for _ in range(3):
            ours.ring()
            theirs.wait()
        assert is_silent(theirs)
        assert is_silent(ours), "the child has taken every ring"
    finally:
        child.end()
        ours.close()
        theirs.close()


def test_time_is_worked_or_waited_for_somebody(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that runs 1, 2, 4, ...: between waits it worked, in waits it was for somebody."""
    ticks = itertools.accumulate(2**n for n in range(9))
    monkeypatch.setattr(clock.time, "perf_counter", lambda: float(next(ticks)))
    (declared,) = clock_arrays(1)
    (times,) = np.zeros(declared.shape)
    mine, bell = Clock(times), Doorbell()
    for column in ("for actors", "waited for the learner", "for actors"):
        bell.ring()
        mine.wait(bell, column)
    expected = {"worked": 2 + 8 + 32, "for actors": 4 + 64, "waited for the learner": 16}
    assert dict(zip(TIMES, times[: len(TIMES)].tolist(), strict=True)) == {
        name: float(expected.get(name, 0)) for name in TIMES
    }
    bell.close()
