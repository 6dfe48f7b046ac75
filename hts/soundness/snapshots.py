"""Does a snapshot hold everything? What follows a restore is compared with what followed before."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np

from hts.soundness.compare import Difference, compare
from hts.soundness.findings import Broken, Finding, Level, last_lines, plural
from hts.soundness.subject import Moment, Single, Subject
from hts.soundness.trace import Event, Plan, Position, Trace, reset, step
from hts_envs.contract import World

CHECK = "snapshot"
Result = TypeVar("Result")

Build = Callable[[], Subject]

STEPS = 500
"""A restored episode is followed for so many steps at most."""


def examine_snapshots(build: Build, plan: Plan, end: Position) -> list[Finding]:
    """Follow the episode that stops at `end`; no findings for a world without snapshots."""
    subject = build()
    try:
        if not isinstance(subject, Single) or not subject.traits.snapshots:
            return []
        return [_Examination(build, plan, end).findings(subject)]
    except (Broken, NotImplementedError) as error:
        if isinstance(error, Broken) and error.check == "raises":
            raise
        return [Finding(Level.ERROR, CHECK, str(error))]
    finally:
        subject.close()


class _Examination:
    def __init__(self, build: Build, plan: Plan, end: Position) -> None:
        self._build = build
        self._plan = plan
        self._episode = end.episode
        self._at = end.step // 2
        self._last = min(end.step, self._at + STEPS)
        self._expected = Trace()

    def findings(self, subject: Single) -> Finding:
        self._begin(subject)
        for event in self._steps(subject, self._at, self._last):
            self._expected.record(event)
        here = self._begin(subject)
        state, seconds = self._snapshot(subject)
        before = compare(self._expected, self._steps(subject, self._at, self._last)).difference
        if before is not None:
            return self._bad("taking a snapshot changes what follows", before)
        again = self._after_restore(subject, state, here)
        if again is not None:
            return self._bad("a snapshot forgets something: after restore", again)
        elsewhere = self._elsewhere(state, here)
        if elsewhere is not None:
            return self._bad("a snapshot forgets something: restored in another world", elsewhere)
        followed = plural(self._last - self._at, "step")
        text = (
            f"{followed} after a restore are bit-equal, also in another world "
            f"({len(state) / 1e3:,.1f} kB in {seconds * 1e3:.2f} ms)"
        )
        return Finding(Level.OK, CHECK, text)

    def _begin(self, subject: Single) -> Trace:
        """Go to the middle of the longest episode; returns what is seen there."""
        events = [reset(subject, self._plan, np.arange(1), np.array([self._episode]))]
        for event in self._steps(subject, 0, self._at):
            events = [event]
        here = Trace()
        here.record(Event("restore", events[0].positions, Moment(events[0].moment.observation)))
        return here

    def _bad(self, text: str, difference: Difference) -> Finding:
        return Finding(Level.ERROR, CHECK, f"{text}: {difference}")

    def _snapshot(self, subject: Single) -> tuple[bytes, float]:
        world = subject.world
        assert isinstance(world, World), "only an ordinary world has snapshots"
        started = time.perf_counter()
        state = _called("snapshot", world.snapshot)
        seconds = time.perf_counter() - started
        if not isinstance(state, bytes):
            raise Broken(CHECK, f"snapshot returns {type(state).__name__} instead of bytes")
        return state, seconds

    def _elsewhere(self, state: bytes, here: Trace) -> Difference | None:
        """Restored in a world that has been in the middle of another episode."""
        other = self._build()
        assert isinstance(other, Single), "the same name builds the same kind of world"
        try:
            another = np.array([self._episode + 1])
            reset(other, self._plan, np.arange(1), another)
            step(other, self._plan, another, np.array([0]))
            return self._after_restore(other, state, here)
        finally:
            other.close()

    def _after_restore(self, subject: Single, state: bytes, here: Trace) -> Difference | None:
        restored = _called("restore", lambda: subject.restore(state))
        (position,) = here.digests
        found = compare(here, [Event("restore", (position,), restored)]).difference
        return (
            found or compare(self._expected, self._steps(subject, self._at, self._last)).difference
        )

    def _steps(self, subject: Single, first: int, last: int) -> Iterator[Event]:
        """Steps first+1 to last of that episode."""
        for k in range(first, last):
            yield step(subject, self._plan, np.array([self._episode]), np.array([k]))


def _called(name: str, call: Callable[[], Result]) -> Result:
    try:
        return call()
    except (Broken, NotImplementedError):
        raise
    except Exception as error:
        text = f"{name} raised {type(error).__name__}: {error}"
        raise Broken("raises", text, last_lines(error)) from error
