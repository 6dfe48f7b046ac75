"""A run that is disturbed on purpose: its processes are killed, and it is stopped as a whole and
goes on from a checkpoint, on another machine layout each time. No digest may show it.

Behind which update, how long behind it, and who, follows from a seed. Where in its work that finds
a process does not: a thread waits for the moment while everybody works on.
"""

from __future__ import annotations

import itertools
import os
import signal
import statistics
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from hts.config import Machine
from hts.errors import HtsError, WrongUsage
from hts.report.checkpoints import KIND, read
from hts.report.sealed import Sealed, seal
from hts.runtime.assemble import Updated
from hts.runtime.parallel import ParallelRun
from hts.runtime.process import Child
from hts.runtime.serial import SerialRun
from hts.runtime.standing import Standing
from hts.scratch import scratch
from hts_envs.randomness import fold_rows, uniform

Run = SerialRun | ParallelRun
Start = Callable[[Machine, Standing | None], Run]
"""Begins the run on a machine, or goes on with it there."""

_KILL, _STOP = (zlib.crc32(name) for name in (b"kill", b"stop"))
_ATTEMPTS = 3
_IN_TIME = 2  # updates before the last one: whoever is to be killed has been by then


@dataclass(frozen=True, order=True)
class _Kill:
    """Behind this update, after this share of the time that an update takes; and who."""

    after: int
    share: float
    who: float


@dataclass(frozen=True)
class Trouble:
    """What is done to the first `updates` of a run: all of it follows from the seed."""

    updates: int = 1
    kills: int = 0
    stops: int = 0  # of the run as a whole
    elsewhere: tuple[Machine, ...] = ()  # where it goes on: one after the other, again and again
    seed: int = 0

    def kills_in(self, count: int, attempt: int) -> list[_Kill]:
        """Those that have their place in the first `count` updates, in order."""
        keys = fold_rows(self.seed, _KILL, attempt, np.arange(self.kills))
        places = max(1, self.updates - _IN_TIME)
        drawn = [_Kill(int(at * places), share, who) for at, share, who in uniform(keys, 3)]
        return sorted(kill for kill in drawn if kill.after < max(1, count - _IN_TIME))

    def stops_in(self, count: int) -> list[int]:
        """The updates among them behind which the run is stopped."""
        assert self.stops < self.updates, "a stop has an update in front of it and one behind it"
        between = uniform(fold_rows(self.seed, _STOP, np.arange(1, self.updates)), 1)[:, 0]
        chosen = np.argsort(between)[: self.stops] + 1
        return sorted(int(stop) for stop in chosen if stop < count)


@dataclass
class Disturbed:
    """The updates that were made all the same."""

    updates: list[Updated]
    killed: int
    stopped: int
    marks: list[str]  # why the digest may be another one, as the runs themselves say


def disturbed(start: Start, machine: Machine, count: int, trouble: Trouble) -> Disturbed:
    """The first updates of a run through this trouble."""
    for attempt in range(_ATTEMPTS):
        legs = _Legs(start, trouble.kills_in(count, attempt))
        stops = trouble.stops_in(count)
        machines = itertools.chain([machine], itertools.cycle(trouble.elsewhere))
        with scratch() as folder:
            for stop, here in zip(stops, machines, strict=False):
                legs.stopped(here, stop, folder / "checkpoint")
            if legs.last(next(machines), count):
                return Disturbed(legs.updates[:count], len(legs.killed), len(stops), legs.marks)
    raise WrongUsage(
        f"--kill {trouble.kills}: so many could not be killed and replaced before update {count:,} "
        f"was made, {_ATTEMPTS} times in a row; give more --updates"
    )


class _Legs:
    """A run in pieces, and what is known between them."""

    def __init__(self, start: Start, kills: Sequence[_Kill]) -> None:
        self.updates: list[Updated] = []
        self.killed: list[Child] = []
        self.marks: list[str] = []
        self._start = start
        self._kills = list(kills)
        self._standing: Standing | None = None

    def stopped(self, machine: Machine, stop: int, path: Path) -> None:
        """Up to this update; where the run stands then is written down, and read again."""
        run = self._start(machine, self._standing)
        try:
            self._follow(run, sum(kill.after < stop for kill in self._kills), stop, in_time=stop)
            self.updates += run.rest()
            self._standing = _carried(run.standing(), len(self.updates), path)
        finally:
            run.close()

    def last(self, machine: Machine, count: int) -> bool:
        """Up to the last update; False when somebody was killed too late for a successor."""
        run = self._start(machine, self._standing)
        try:
            self._follow(run, len(self._kills), count, in_time=count - _IN_TIME)
            # Others may have been replaced as well: those whose simulators raised.
            children = run.children if isinstance(run, ParallelRun) else []
            return not self._kills and not any(child in self.killed for child in children)
        finally:
            run.close()

    def _follow(self, run: Run, kills: int, until: int, *, in_time: int) -> None:
        """One update at least, and so many kills before the update behind `in_time`."""
        killer = _Killer(run, self._kills[:kills], len(self.updates))
        try:
            following = iter(run)
            while True:
                if len(self.updates) >= in_time:
                    killer.finish()
                updated = next(following, None)
                if updated is None:
                    return
                self.updates.append(updated)
                killer.tell(len(self.updates))
                if len(self.updates) >= until:
                    return
        finally:
            killed = killer.finish()
            self.marks += run.marks
            self.killed += killed
            self._kills = self._kills[len(killed) :]


def _carried(standing: Standing | None, updates: int, path: Path) -> Standing:
    """What comes back from a file."""
    if standing is None or standing.updates != updates:
        seen = "nothing" if standing is None else f"update {standing.updates:,}"
        raise HtsError(f"stopped behind update {updates:,}, the run stands where {seen} is seen")
    seal(path, KIND, Sealed({"chain": standing.chain}, standing.arrays))
    held = read(path)
    return Standing(updates, held.facts["chain"], held.arrays)


class _Killer:
    """Kills processes of a run at their moments, in a thread, while others follow the run."""

    def __init__(self, run: Run, kills: Sequence[_Kill], told: int) -> None:
        self._run = run
        self._kills = kills
        self._told = told
        self._times = [time.monotonic()]
        self._killed: list[Child] = []
        self._hurries = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._kill, name="killer", daemon=True)
        if kills:
            self._thread.start()

    def tell(self, told: int) -> None:
        """So many updates have been told."""
        with self._changed:
            self._told = told
            self._times.append(time.monotonic())
            self._changed.notify()

    def finish(self) -> list[Child]:
        """Kill at once what was not killed yet, while any child lives; returns all that were."""
        with self._changed:
            self._hurries = True
            self._changed.notify()
        if self._kills:
            self._thread.join()
        return list(self._killed)

    def _kill(self) -> None:
        for kill in self._kills:
            with self._changed:
                self._changed.wait_for(partial(self._is_behind, kill.after))
                self._changed.wait_for(lambda: self._hurries, kill.share * self._usual())
                self._changed.wait_for(lambda: self._hurries or self._living)
            living = self._living
            if not living:
                return
            child = living[int(kill.who * len(living))]
            os.kill(child.pid, signal.SIGKILL)
            self._killed.append(child)

    def _is_behind(self, update: int) -> bool:
        return self._hurries or self._told >= update

    @property
    def _living(self) -> list[Child]:
        """Those that were not killed: successors count when the next update is told."""
        assert isinstance(self._run, ParallelRun), "there is nobody to kill in one process"
        return [child for child in self._run.children if child not in self._killed]

    def _usual(self) -> float:
        """Seconds that an update takes here, when nobody has died."""
        spans = [after - before for before, after in itertools.pairwise(self._times)]
        return statistics.median(spans) if spans else 0.0
