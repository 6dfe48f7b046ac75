"""Many interleavings (`tests.machine.simulation`), on one core or on all, and what they came to."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hts.runtime import nursery
from hts.runtime.process import Child, Pipe
from tests.machine.simulation import Interleaving, Simulation


@dataclass
class Tally:
    """What many interleavings came to."""

    schedules: set[str] = field(default_factory=set)
    deaths: Counter[str] = field(default_factory=Counter)
    count: int = 0
    points: int = 0
    switches: int = 0
    disturbed: int = 0
    standings: int = 0
    resumed: int = 0

    def add(self, found: Interleaving) -> None:
        self.count += 1
        self.schedules.add(found.schedule)
        self.deaths.update(found.killed)
        self.points += found.points
        self.switches += found.switches
        self.disturbed += bool(found.killed)
        self.standings += found.standings
        self.resumed += len(found.machines) > 1

    def join(self, other: Tally) -> None:
        """What others came to, too."""
        for name, found in vars(other).items():
            ours = getattr(self, name)
            setattr(self, name, ours | found if isinstance(found, set) else ours + found)

    def __str__(self) -> str:
        return (
            f"{self.count:,} interleavings, {len(self.schedules):,} of them distinct, with "
            f"{self.points:,} points and {self.switches:,} switches; {self.deaths.total():,} "
            f"deaths in {self.disturbed:,} of them; {self.standings:,} standings seen, "
            f"{self.resumed:,} runs stopped and resumed"
        )


def explore(simulation: Simulation, seeds: Iterable[int]) -> Tally:
    """Interleave all of these seeds; the first one that fails ends it."""
    tally = Tally()
    for seed in seeds:
        tally.add(simulation.interleave(seed))
    return tally


def explore_apart(count: int) -> Tally:
    """The first so many seeds, on all cores: each explores its share in a process of its own."""
    nursery.warm()  # torch is there before anything asks for its numerics
    cores = len(os.sched_getaffinity(0))
    children = [
        Child(f"explorer {core}", _explorer, list(range(core, count, cores)))
        for core in range(cores)
    ]
    tally = Tally()
    try:
        for child in children:
            said = child.hear()
            said["schedules"], said["deaths"] = set(said["schedules"]), Counter(said["deaths"])
            tally.join(Tally(**said))
    finally:
        for child in children:
            child.end()
    return tally


def _explorer(pipe: Pipe, seeds: Sequence[int]) -> None:
    with Simulation() as simulation:
        found = explore(simulation, seeds)
    pipe.send(**{**vars(found), "schedules": sorted(found.schedules)})
    pipe.receive()
