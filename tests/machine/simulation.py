"""The real machine in one process, under a scheduler with a seed: one interleaving for each seed.

`ParallelRun`, the processes' own `run` functions, and what they are made of are the real ones, but
for two: who answers and who learns are stand-ins without a network (`tests.fakes.numbered_roles`),
which hold what they read to what must be there. The world counts. What they all ask of the
operating system is replaced (`tests.fakes.kernel`, `_replacements`). Of every interleaving is asked
that

- the run ends, and nobody waits for ever on the way, whoever dies;
- every update, with its digests, episodes and hashes, is the one of a run that nothing disturbs,
  for every layout;
- whenever the run says where it stands between two updates, it stands there, and a run that goes
  on from there, with another layout, does what is left.

Steps in threads are not simulated: a thread runs whenever it likes, and points cannot stop it.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

import numpy as np

from hts.config import PPO, Experiment, Machine, Mlp
from hts.determinism.digest import Digest
from hts.determinism.strategy import Strategy
from hts.memory import desk
from hts.memory.versions import Version
from hts.models.policy import Policy
from hts.roles import blocks
from hts.runtime import assemble, jitter, parallel, process, shared, supervise, watch
from hts.runtime.assemble import Plan, Updated
from hts.runtime.shared import Blueprint, Roles
from hts.runtime.standing import Standing
from hts_envs import counting, registry
from hts_envs.contract import Place, Spaces
from tests.fakes.kernel import Kernel, remembered
from tests.fakes.numbered_roles import numbered
from tests.machine.scheduler import Scheduler

ROLES = Roles("tests.fakes.numbered_roles:answering", "tests.fakes.numbered_roles:Learner")

MANY = 1_000_000  # deaths that a run may see


def _experiment(options: str, replicas: int, rollout: int, updates: int, **more: Any) -> Experiment:
    return Experiment(
        env=f"counting:?{options}",
        algo=PPO(minibatches=1),
        model=Mlp(hidden=(1,)),
        replicas=replicas,
        rollout=rollout,
        steps=replicas * rollout * updates,
        **more,
    )


def _machine(**given: Any) -> Machine:
    return Machine(replacements=MANY, patience=0.0, stepping="turns", **given)


EXPERIMENTS = {
    "short episodes": _experiment("length=2", 3, 2, 4),
    "stacks longer than a rollout": _experiment("length=3", 2, 2, 4, frame_stack=4),
    "long episodes, two agents": _experiment("length=12&agents=2", 3, 2, 5, frame_stack=2),
    "recurrent": _experiment("length=4", 2, 3, 4, recurrent="gru", recurrent_units=1),
    "no lag": _experiment("length=3", 2, 2, 3, schedule="sync"),
}

MACHINES = {
    "inline": _machine(executors=2, actors=0, blocks=1),
    "inline, blocks": _machine(executors=1, actors=0, blocks=2),
    "one actor": _machine(executors=1, actors=1, blocks=2),
    "two actors": _machine(executors=2, actors=2, blocks=1),
    "an actor for two executors": _machine(executors=2, actors=1, blocks=1),
    "barrier": _machine(executors=2, actors=1, blocks=1, barrier=True),
}


@dataclass(frozen=True)
class Prepared(Plan):
    """A plan that is worked out once: interleavings need of a network no more than its size."""

    def policy(self, *, packs: bool = False) -> Policy:
        return _facts(self.experiment).policy

    def strategy(self) -> Strategy:
        return Strategy(4, "no network answers")

    def first_versions(self) -> list[Version]:
        alive = (0, 1) if self.experiment.schedule == "hts" else (0,)
        return [numbered(number, self.policy().size) for number in alive]

    def digest(self) -> Digest:
        return Digest("").after(0, _facts(self.experiment).chain)

    def blueprint(self, machine: Machine) -> Blueprint:
        return _blueprint(self.experiment, machine)


@dataclass(frozen=True)
class _Facts:
    spaces: Spaces
    policy: Policy
    chain: str


@functools.cache
def _facts(experiment: Experiment) -> _Facts:
    spec = registry.parse(experiment.env)
    spaces = registry.make(spec, Place(0, 1, experiment.seed)).spaces
    chain = Digest(experiment.identity()).chain
    return _Facts(spaces, Policy(experiment, spaces, "cpu"), chain)


@functools.cache
def _blueprint(experiment: Experiment, machine: Machine) -> Blueprint:
    return Plan(experiment, _facts(experiment).spaces, "cpu").blueprint(machine)


@dataclass(frozen=True)
class Expected:
    """What every interleaving of one experiment must come to."""

    updates: list[Updated]
    standings: dict[int, Standing]
    usual: dict[str, dict[str, int]]  # by machine and process: points that it comes to


@dataclass(frozen=True)
class _Calm:
    """What a run comes to that nothing disturbs."""

    told: list[Updated]
    standing: Standing
    points: dict[str, int]


@dataclass
class Interleaving:
    """What one seed came to."""

    seed: int
    experiment: str
    machines: list[str]
    schedule: str = ""
    points: int = 0
    switches: int = 0
    killed: list[str] = field(default_factory=list)
    standings: int = 0

    def __str__(self) -> str:
        return f"seed {self.seed} ({self.experiment}; {', then '.join(self.machines)})"


class Failed(AssertionError):
    """An interleaving that did not come to what it must; its cause says why."""

    def __init__(self, found: Interleaving, why: BaseException, tape: list[str] | None) -> None:
        super().__init__(
            f"{found}: {type(why).__name__}: {why}; {found.points:,} points, killed: "
            f"{', '.join(found.killed) or 'nobody'}, schedule {found.schedule}"
        )
        self.found, self.tape = found, tape


class Simulation:
    """Runs interleavings, one after the other; use it inside `with`."""

    def __init__(self) -> None:
        self.scheduler = Scheduler()
        self._kernel = Kernel(self.scheduler)
        self._cases = [(name, machine) for name in EXPERIMENTS for machine in MACHINES]

    def __enter__(self) -> Simulation:
        with contextlib.ExitStack() as patches:
            quiet = patches.enter_context(open(os.devnull, "w"))
            patches.enter_context(contextlib.redirect_stderr(quiet))
            for place, name, standin in self._replacements():
                patches.enter_context(patch.object(place, name, standin))
            self._expected = {name: self._expect(asked) for name, asked in EXPERIMENTS.items()}
            self._patches = patches.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._patches.close()

    def _replacements(self) -> Iterator[tuple[Any, str, Any]]:
        """All that is not the real machine: the operating system, and, to save time, what comes
        out the same again and again."""
        kernel = self._kernel
        yield process, "pipe", kernel.pipe
        yield process, "bear", kernel.bear
        yield process, "wait", kernel.wait
        yield desk, "Doorbell", kernel.Doorbell
        yield shared, "Arena", kernel
        yield process, "_Stacks", kernel.Stacks
        for module in (jitter, supervise, watch):
            yield module, "time", kernel
        yield supervise, "_STARTS", MANY  # no death is anybody's own fault

        yield assemble, "Plan", Prepared
        for name in ("fold_rows", "_payload", "verify", "expected_action"):
            yield counting, name, remembered(getattr(counting, name))
        for name in ("extend", "stems"):
            yield blocks, name, remembered(getattr(blocks, name))
        yield jitter, "fold", lambda *_: 0
        yield registry, "parse", functools.cache(registry.parse)

    def interleave(self, seed: int, *, tape: bool = False) -> Interleaving:
        """The interleaving of this seed; raises `Failed` if it goes wrong in any way."""
        experiment, machine = self._cases[seed % len(self._cases)]
        found = Interleaving(seed, experiment, [machine])
        scheduler = self.scheduler
        scheduler.reset(seed)
        scheduler.tape = [] if tape else None
        course = _Course(scheduler, EXPERIMENTS[experiment], self._expected[experiment], found)

        def body() -> None:
            course.begin(machine)
            while course.stopped is not None:
                other = list(MACHINES)[int(scheduler.random() * len(MACHINES))]
                found.machines.append(other)
                course.begin(other)

        try:
            scheduler.run(body)
        except Exception as error:
            _note(found, scheduler)
            raise Failed(found, error, scheduler.tape) from error
        _note(found, scheduler)
        return found

    def _expect(self, experiment: Experiment) -> Expected:
        """What happens where nothing disturbs, and where runs stand that end earlier."""
        standings = {}
        for updates in range(1, experiment.updates + 1):
            shorter = replace(experiment, steps=experiment.rows * updates)
            calm = self._calm(shorter, _machine(executors=1, actors=0, blocks=1))
            standings[updates] = calm.standing
        usual = {name: self._calm(experiment, asked).points for name, asked in MACHINES.items()}
        return Expected(calm.told, standings, usual)

    def _calm(self, experiment: Experiment, machine: Machine) -> _Calm:
        """A run in which everybody goes on until it has to wait, and nobody dies."""
        self.scheduler.reset(0)
        self.scheduler.calm()
        told: list[Updated] = []
        standings: list[Standing | None] = []

        def body() -> None:
            run = parallel.ParallelRun(planned(experiment), machine)
            told.extend(run)
            standings.append(run.standing())
            run.close()

        self.scheduler.run(body)
        (standing,) = standings
        assert standing is not None, "where a run has ended can be seen"
        points = {name: seat.points for name, seat in self.scheduler.seats.items()}
        del points["run"]
        return _Calm(told, standing, points)


def planned(experiment: Experiment) -> Prepared:
    return Prepared(experiment, _facts(experiment).spaces, "cpu", jitter=1.0, roles=ROLES)


@dataclass
class _Course:
    """One run, and the one that goes on where it is stopped."""

    scheduler: Scheduler
    experiment: Experiment
    expected: Expected
    found: Interleaving
    told: int = 0
    stopped: Standing | None = None

    def begin(self, machine: str) -> None:
        """Run until the end, or until it is stopped; `stopped` is where another one may go on."""
        looks, stop = self._draw()
        self.scheduler.threaten(self.expected.usual[machine])
        run = parallel.ParallelRun(planned(self.experiment), MACHINES[machine], self.stopped)
        self.stopped = last = None
        try:
            for updated in run:
                self._hold(updated)
                last = (self._look(run) if looks else None) or last
                if self.told == stop:
                    self.stopped = self._interrupt(run) or last
                    break
            assert not run.marks, "a world that can be repeated is rebuilt"
        finally:
            run.close()
        if self.stopped is not None:
            self.told = self.stopped.updates
        else:
            assert self.told == self.experiment.updates or stop, "every update is told"

    def _draw(self) -> tuple[bool, int]:
        """Is it looked at, and behind which update is it stopped (0: not at all)?"""
        draw = self.scheduler.random
        looks, stops = draw() < 0.3, draw() < 0.2
        return looks, int(stops and 1 + draw() * self.experiment.updates)

    def _interrupt(self, run: parallel.ParallelRun) -> Standing | None:
        """Now and then it may say its last words; as often it just ends."""
        if self.scheduler.random() < 0.5:
            return None
        for updated in run.rest():
            self._hold(updated)
        return self._look(run)

    def _hold(self, updated: Updated) -> None:
        expected = self.expected.updates[self.told]
        assert updated == expected, f"update {self.told + 1} is {updated}, not {expected}"
        self.told += 1

    def _look(self, run: parallel.ParallelRun) -> Standing | None:
        """Where it says that it stands, if that can be seen."""
        standing = run.standing()
        if standing is None:
            return None
        self.found.standings += 1
        expected = self.expected.standings[self.told]
        assert standing.updates == self.told, "it stands behind the update that was told last"
        assert standing.chain == self.expected.updates[self.told - 1].link.chain
        assert standing.arrays.keys() == expected.arrays.keys(), "it holds what it must"
        wrong = [
            name
            for name, array in expected.arrays.items()
            if not np.array_equal(array, standing.arrays[name])
        ]
        assert not wrong, f"after update {self.told} it does not stand where it says: {wrong}"
        return standing


def _note(found: Interleaving, scheduler: Scheduler) -> None:
    found.schedule, found.killed = scheduler.schedule, scheduler.killed
    found.points, found.switches = scheduler.steps, scheduler.switches
