"""`auto` looks again: a run whose layout is changed while it goes on, where that is faster.

What a sample costs is measured before a run begins, on a policy that knows nothing; later games may
be longer, steps slower, cores shared. So the run itself is looked at: what its executors and its
learner have computed for each sample. Where another number of them would be a tenth faster, the run
is stood where it is between two updates and goes on from there with that many, as one that was
stopped and resumed does: the digest cannot tell, and what is lost is the time in which simulators
come back. Where they cannot, nobody moves, nor for a small gain, nor for less than it would save.
How far a layout was off from what was expected of it is remembered, so that one which was no better
is not tried again soon.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

from hts.bench.processes import cpu_seconds_of
from hts.config import Experiment, Machine
from hts.errors import HtsError, RoleFailed
from hts.report.say import mention
from hts.runtime.assemble import Plan, Updated
from hts.runtime.layout import Counts, Layout, Work, choices, pace, recounted
from hts.runtime.parallel import LEARNER, ParallelRun
from hts.runtime.standing import Standing
from hts.runtime.vitals import Crewed, Spent
from hts.signals import undisturbed

_WORTH = 0.9  # other numbers have to shorten a rollout to this
_LONGEST = 600.0  # seconds between two looks
_SAVED = 4.0  # times what moving costs has to be saved by it
_FORGOTTEN = 0.2  # of how others were off, in each look: the machine may be another one by now


@dataclass(frozen=True)
class Seen:
    """What a run has done for a while, with so many executors and learner threads."""

    counts: Counts
    seconds: float  # of a sample
    work: Work


class Thoughts:
    """Which numbers are worth going on with, after everything that was seen."""

    def __init__(self, layout: Layout, experiment: Experiment, cores: int) -> None:
        assert layout.asked is not None, "somebody may be counted again"
        self._choices = choices(layout.asked, experiment, cores)
        self._experiment = experiment
        self._cores = cores
        self._off: dict[Counts, float] = {}  # times what was to be expected

    def better(self, seen: Seen) -> tuple[Counts, float] | None:
        """Others, and the seconds of a sample that are expected of them, if they are worth it."""
        paces = {counts: self._pace(seen.work, counts) for counts in self._choices}
        if not all(paces.values()):
            return None  # too short a look: nobody was seen computing
        now = seen.seconds / paces[seen.counts]
        self._off[seen.counts] = now
        expected = {c: pace * self._off.get(c, now) for c, pace in paces.items()}
        self._off = {c: off + _FORGOTTEN * (now - off) for c, off in self._off.items()}
        best = min(self._choices, key=expected.__getitem__)
        return (best, expected[best]) if expected[best] < _WORTH * seen.seconds else None

    def _pace(self, work: Work, counts: Counts) -> float:
        return pace(self._experiment, self._cores, work, counts)


@dataclass(frozen=True)
class _Moment:
    """The end of an update, and what everybody had computed by then."""

    at: float
    updates: int
    acting: float  # CPU seconds
    learning: float
    pids: tuple[int, ...]


@dataclass(frozen=True)
class _Wanted:
    """Other numbers, the seconds that they save with each sample, and CPU seconds of acting."""

    counts: Counts
    saves: float
    acting: float


class MovingRun:
    """A parallel run that may move to another layout between two updates."""

    def __init__(
        self, found: Plan, layout: Layout, cores: int, begin: Standing | None = None
    ) -> None:
        self.moved: list[str] = []
        self._found = found
        self._layout = layout
        self._thoughts = Thoughts(layout, found.experiment, cores)
        self._wait = layout.machine.revise
        self._updates = 0 if begin is None else begin.updates
        self._replaced: list[str] = []
        self._marks: list[str] = []
        self._since: _Moment | None = None
        self._wanted: _Wanted | None = None
        self._stands: Standing | None = None  # where it is while nobody is there
        self._leaves: ParallelRun | None = None  # who is being ended
        began = time.monotonic()
        self._run: ParallelRun | None = ParallelRun(found, layout.machine, begin)
        self._starting = time.monotonic() - began
        self.strategy = self._run.strategy
        self._crewed = self._run.crewed()

    def __iter__(self) -> Iterator[Updated]:
        """Update after update, in the order of the rollouts."""
        goes_on = True
        while goes_on:
            goes_on = False
            assert self._run is not None, "a run that has moved is there again"
            for updated in self._run:
                self._updates += 1
                yield updated
                goes_on = self._is_to_move(self._run)
                if goes_on:
                    break
            if goes_on:
                self._move()

    def _is_to_move(self, run: ParallelRun) -> bool:
        """Behind this update, from where it stands; never where simulators did not come back."""
        if self.marks:
            return False
        if self._wanted is None:
            self._wanted = self._thought_over(run)
        if self._wanted is None:
            return False
        standing = run.standing()
        if standing is None:
            return False  # it cannot be seen behind each update
        wanted, experiment = self._wanted, self._found.experiment
        replayed = _steps_to_replay(standing) * wanted.acting / wanted.counts[0]
        left = experiment.steps - self._updates * experiment.rows
        if left * wanted.saves <= _SAVED * (self._starting + replayed):
            self._wanted = None
            return False
        self._stands = standing
        return True

    def _thought_over(self, run: ParallelRun) -> _Wanted | None:
        """When it is time for that: what to go on with, if it is not this."""
        since = self._since
        if since is not None and time.monotonic() - since.at < self._wait:
            return None
        now = self._moment(run)
        if since is None or now.pids != since.pids:  # somebody who begins costs more
            self._since = now
            return None
        longer = max(self._layout.machine.revise, _LONGEST)
        self._since, self._wait = now, min(2 * self._wait, longer)
        samples = (now.updates - since.updates) * self._found.experiment.rows
        acting = (now.acting - since.acting) / samples
        work = Work(lambda _: acting, (now.learning - since.learning) / samples)
        seen = Seen(_counts(self._layout.machine), (now.at - since.at) / samples, work)
        found = self._thoughts.better(seen)
        if found is None:
            return None
        better, expected = found
        return _Wanted(better, seen.seconds - expected, acting)

    def _moment(self, run: ParallelRun) -> _Moment:
        learner = [child.pid for child in run.children if child.name == LEARNER]
        others = [child.pid for child in run.children if child.name != LEARNER]
        acting, learning = cpu_seconds_of(others), cpu_seconds_of(learner)
        return _Moment(time.monotonic(), self._updates, acting, learning, (*others, *learner))

    def _move(self) -> None:
        """Whoever interrupts this finds the run standing, and whoever is left there is ended."""
        assert self._wanted is not None, "somewhere to go"
        before = self._layout.machine
        after = recounted(self._layout, self._found.experiment, self._wanted.counts)
        self._wanted = self._since = None
        with undisturbed():
            self._leave()
        trouble = self._try(after)
        if trouble:
            self._wait = math.inf
            mention(f"hts-train: machine: it stays as it was, for it could not change: {trouble}")
            self._run = ParallelRun(self._found, before, self._stands)
        else:
            self._layout = Layout(after, self._layout.why, self._layout.asked)
            self.moved.append(
                f"behind update {self._updates:,}: {_told(before)} became {_told(after)}"
            )
            mention(f"hts-train: machine: {self.moved[-1]}, to be faster")
        assert self._run is not None, "there or here, it goes on"
        self._crewed, self._stands = self._run.crewed(), None

    def _try(self, machine: Machine) -> str:
        """Go on there, or say why not: in words, for an error holds on to the memory of who made
        it."""
        try:
            self._run = ParallelRun(self._found, machine, self._stands)
        except RoleFailed as error:
            return error.short
        except (HtsError, OSError) as error:
            return str(error)
        return ""

    def _leave(self) -> None:
        """End everybody, and let go of their memory: the next ones need as much."""
        self._leaves, self._run = self._run, None
        assert self._leaves is not None, "who moves was somewhere"
        self._replaced += self._leaves.replaced
        self._marks += self._leaves.marks
        last = [Spent(spent.role, spent.rows.copy()) for spent in self._crewed.spent()]
        learners, taken = self._crewed.learners(), self._crewed.taken()
        self._crewed = Crewed(lambda: last, lambda: (), lambda: 0, lambda: learners, lambda: taken)
        self._leaves.close()
        self._leaves = None

    @property
    def chain(self) -> str:
        """The digest so far."""
        if self._run is not None:
            return self._run.chain
        assert self._stands is not None, "it stands where it was going to move from"
        return self._stands.chain

    @property
    def replaced(self) -> list[str]:
        """Whose place was taken by another one, and why."""
        run = self._run
        return self._replaced + (run.replaced if run is not None else [])

    @property
    def marks(self) -> list[str]:
        """Why the digest is not that of an undisturbed run, if it is not."""
        run = self._run
        return self._marks + (run.marks if run is not None else [])

    def rest(self) -> Iterator[Updated]:
        """What was learnt and not told."""
        if self._run is not None:
            yield from self._run.rest()

    def standing(self) -> Standing | None:
        """Where the run stands now, if that can be seen."""
        return self._stands if self._run is None else self._run.standing()

    def time_budget(self) -> str:
        """Where time went, since it moved last."""
        return "nobody was there" if self._run is None else self._run.time_budget()

    def crewed(self) -> Crewed:
        """What is seen of it from outside, wherever it is."""
        return Crewed(
            lambda: self._crewed.spent(),
            lambda: self._crewed.pids(),
            lambda: len(self.replaced),
            lambda: self._crewed.learners(),
            lambda: self._crewed.taken(),
            lambda: self._crewed.filled(),
        )

    def close(self) -> None:
        """End every process."""
        for run in (self._leaves, self._run):
            if run is not None:
                run.close()


def _counts(machine: Machine) -> Counts:
    assert not isinstance(machine.executors, str), "everybody is counted"
    assert not isinstance(machine.learners, str), "everybody is counted"
    return machine.executors, machine.learners


def _told(machine: Machine) -> str:
    executors, learners = _counts(machine)
    threads = "learner thread" if learners == 1 else "learner threads"
    return f"{executors} executor{'s' if executors > 1 else ''} and {learners} {threads}"


def _steps_to_replay(standing: Standing) -> int:
    """Those behind the begin, or the snapshot, of each running episode."""
    age, known = standing.arrays["replicas.age"], standing.arrays["snapshots.age"]
    return int((age - known).clip(0).sum())
