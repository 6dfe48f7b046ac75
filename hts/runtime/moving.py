"""`auto` looks again: a run whose layout is changed while it goes on, where that is faster.

What a sample costs is measured before a run begins, on a policy that knows nothing; later games may
be longer, steps slower, cores shared. So the run itself is looked at: what its executors and its
learner have computed for each sample. Where another number of them would be a tenth faster, the run
is stood where it is between two updates and goes on from there with the other crew, as one that was
stopped and resumed does: the digest cannot tell, and what is lost is the time in which simulators
come back. Where they cannot, nobody moves, nor for a small gain, nor for less than it would save.
How far a crew was off from what was expected of it is remembered, so that one which was no better
is not tried again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from hts.bench.processes import cpu_seconds_of
from hts.config import Experiment, Machine
from hts.report.say import mention
from hts.runtime.assemble import Plan, Updated
from hts.runtime.layout import Crew, Layout, Work, crews, pace, recrewed
from hts.runtime.parallel import LEARNER, ParallelRun
from hts.runtime.standing import Standing
from hts.runtime.vitals import Crewed

_WORTH = 0.9  # another crew has to shorten a rollout to this
_LONGEST = 600.0  # seconds between two looks
_STARTING = 3.0  # seconds in which processes are born
_SAVED = 4.0  # times what moving costs has to be saved by it


@dataclass(frozen=True)
class Seen:
    """What a run has done for a while."""

    crew: Crew
    seconds: float  # of a sample
    work: Work


class Thoughts:
    """Which crew is worth going on with, after everything that was seen."""

    def __init__(self, layout: Layout, experiment: Experiment, cores: int) -> None:
        assert layout.asked is not None, "somebody may be counted again"
        self._crews = crews(layout.asked, experiment, cores)
        self._experiment = experiment
        self._cores = cores
        self._off: dict[Crew, float] = {}  # times what was to be expected of it

    def better(self, seen: Seen) -> tuple[Crew, float] | None:
        """Another crew and the seconds of a sample that are expected of it, if that is worth it."""
        self._off[seen.crew] = seen.seconds / self._pace(seen.work, seen.crew)
        others = self._off[seen.crew]  # as much as it, until they are tried
        expected = {
            crew: self._pace(seen.work, crew) * self._off.get(crew, others) for crew in self._crews
        }
        best = min(self._crews, key=expected.__getitem__)
        return (best, expected[best]) if expected[best] < _WORTH * seen.seconds else None

    def _pace(self, work: Work, crew: Crew) -> float:
        return pace(self._experiment, self._cores, work, crew)


@dataclass(frozen=True)
class _Mark:
    """A moment at the end of an update."""

    at: float
    updates: int
    acting: float  # CPU seconds
    learning: float
    pids: tuple[int, ...]


@dataclass(frozen=True)
class _Wanted:
    """Another crew, the seconds that it would save to the end, and CPU seconds of acting."""

    crew: Crew
    saves: float
    acting: float


@dataclass(frozen=True)
class _Move:
    """A crew, and where the run stands as it comes."""

    crew: Crew
    standing: Standing


class MovingRun:
    """A parallel run that may move to another layout between two updates."""

    def __init__(
        self, found: Plan, layout: Layout, cores: int, begin: Standing | None = None
    ) -> None:
        self._found = found
        self._layout = layout
        self._thoughts = Thoughts(layout, found.experiment, cores)
        self._wait = layout.machine.revise
        self._updates = 0 if begin is None else begin.updates
        self._begin = begin
        self._replaced: list[str] = []
        self._marks: list[str] = []
        self.moved: list[str] = []
        self._run: ParallelRun | None = ParallelRun(found, layout.machine, begin)
        self.strategy = self._run.strategy
        self._since: _Mark | None = None
        self._wanted: _Wanted | None = None
        self._seen_from_outside = self._run.crewed()

    def __iter__(self) -> Iterator[Updated]:
        """Update after update, in the order of the rollouts."""
        while self._run is not None:
            run, move = self._run, None
            for updated in run:
                self._updates += 1
                yield updated
                move = self._due(run)
                if move is not None:
                    break
            if move is None:
                return
            self._go(run, move)

    def _due(self, run: ParallelRun) -> _Move | None:
        """What to do behind this update; nothing any more where simulators did not come back."""
        if self.marks:
            return None
        if self._wanted is None:
            self._wanted = self._thought_over(run)
        if self._wanted is None:
            return None
        standing = run.standing()
        if standing is None:
            return None  # it cannot be seen behind each update
        wanted, self._wanted = self._wanted, None
        replayed = _steps_to_replay(standing) * wanted.acting / wanted.crew[0]
        worth_it = wanted.saves > _SAVED * (_STARTING + replayed)
        return _Move(wanted.crew, standing) if worth_it else None

    def _mark(self, run: ParallelRun) -> _Mark:
        learner = [child.pid for child in run.children if child.name == LEARNER]
        others = [child.pid for child in run.children if child.name != LEARNER]
        acting, learning = cpu_seconds_of(others), cpu_seconds_of(learner)
        return _Mark(time.monotonic(), self._updates, acting, learning, (*others, *learner))

    def _thought_over(self, run: ParallelRun) -> _Wanted | None:
        """When it is time for that: the crew to go on with, if it is not this one."""
        now = self._mark(run)
        since = self._since
        if since is None or now.pids != since.pids:  # somebody who begins costs more
            self._since = now
            return None
        if now.at - since.at < self._wait:
            return None
        self._since, self._wait = None, min(2 * self._wait, _LONGEST)
        experiment = self._found.experiment
        samples = (now.updates - since.updates) * experiment.rows
        acting = (now.acting - since.acting) / samples
        work = Work(lambda _: acting, (now.learning - since.learning) / samples)
        seen = Seen(_crew(self._layout.machine), (now.at - since.at) / samples, work)
        found = self._thoughts.better(seen)
        if found is None:
            return None
        better, expected = found
        left = experiment.steps - now.updates * experiment.rows
        return _Wanted(better, left * (seen.seconds - expected), acting)

    def _go(self, old: ParallelRun, move: _Move) -> None:
        """Whoever interrupts this finds the run standing, and nobody there."""
        machine = recrewed(self._layout, self._found.experiment, move.crew)
        self._replaced += old.replaced
        self._marks += old.marks
        self.moved.append(
            f"behind update {move.standing.updates:,}: {_told(self._layout.machine)} became "
            f"{_told(machine)}"
        )
        mention(f"hts-train: machine: {self.moved[-1]}, to be faster")
        self._begin, self._run = move.standing, None
        old.close()
        self._layout = Layout(machine, self._layout.why, self._layout.asked)
        self._run = ParallelRun(self._found, machine, move.standing)
        self._seen_from_outside = self._run.crewed()

    @property
    def chain(self) -> str:
        """The digest so far."""
        if self._run is not None:
            return self._run.chain
        assert self._begin is not None, "it stands where it was going to move from"
        return self._begin.chain

    @property
    def replaced(self) -> list[str]:
        """Whose place was taken by another one, and why."""
        return self._replaced + (self._run.replaced if self._run is not None else [])

    @property
    def marks(self) -> list[str]:
        """Why the digest is not that of an undisturbed run, if it is not."""
        return self._marks + (self._run.marks if self._run is not None else [])

    def rest(self) -> Iterator[Updated]:
        """What was learnt and not told."""
        if self._run is not None:
            yield from self._run.rest()

    def standing(self) -> Standing | None:
        """Where the run stands now, if that can be seen."""
        return self._begin if self._run is None else self._run.standing()

    def time_budget(self) -> str:
        """Where time went, since it moved last."""
        return "" if self._run is None else self._run.time_budget()

    def crewed(self) -> Crewed:
        """What is seen of it from outside, wherever it is."""
        return Crewed(
            lambda: self._seen_from_outside.spent(),
            lambda: self._seen_from_outside.pids(),
            lambda: len(self.replaced),
        )

    def close(self) -> None:
        """End every process."""
        if self._run is not None:
            self._run.close()


def _crew(machine: Machine) -> Crew:
    assert not isinstance(machine.executors, str), "everybody is counted"
    assert not isinstance(machine.learners, str), "everybody is counted"
    return machine.executors, machine.learners


def _told(machine: Machine) -> str:
    executors, learners = _crew(machine)
    threads = "learner thread" if learners == 1 else "learner threads"
    return f"{executors} executor{'s' if executors > 1 else ''} and {learners} {threads}"


def _steps_to_replay(standing: Standing) -> int:
    """Those behind the begin, or the snapshot, of each running episode."""
    age, known = standing.arrays["replicas.age"], standing.arrays["snapshots.age"]
    return int((age - known).clip(0).sum())
