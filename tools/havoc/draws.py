"""What happens in a round: drawn from a seed and the round's number, all of it before it begins."""

from __future__ import annotations

import dataclasses
import itertools
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hts.config import Config, Experiment, Machine
from hts.config.check import check
from hts_envs.randomness import fold

What = Literal["kill", "kill all", "stop", "stop all", "end"]
WHAT: tuple[What, ...] = (
    *("kill",) * 8,
    *("stop",) * 3,
    *("end",) * 3,
    "kill all",
    "stop all",
)
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGKILL)
LEAST_ACTS, MORE_ACTS = 4, 7
LONGEST_STOP = 2.0


class Draws:
    """Random numbers: each is a function of the seed, the round, and how many came before it."""

    def __init__(self, seed: int, number: int) -> None:
        self._stem = fold(seed, number)
        self._count = 0

    def share(self) -> float:
        """In [0, 1)."""
        self._count += 1
        return fold(self._stem, self._count) / 2**64

    def below(self, count: int) -> int:
        return int(self.share() * count)

    def pick(self, things: Sequence[Any]) -> Any:
        return things[self.below(len(things))]


@dataclass(frozen=True)
class Act:
    """One thing that is done to the run."""

    at: int  # done when so many updates are in the record
    wait: float  # and then this share of the time of an update, or of the start, has passed
    what: What
    who: float  # which of the processes
    seconds: float  # how long it is stopped
    number: signal.Signals  # what ends the run
    group: bool  # all of its processes get it, as from a terminal
    on: Machine  # where the run goes on then

    def __str__(self) -> str:
        told = {
            "stop": f"stop one {self.seconds:.1f} s",
            "stop all": f"stop all {self.seconds:.1f} s",
            "end": f"{self.number.name}{' to all' if self.group else ''}",
        }
        return f"{told.get(self.what, self.what)} at {self.at}"


@dataclass(frozen=True)
class Script:
    """The machine of the first leg, and everything that is done, in its order."""

    machine: Machine
    acts: tuple[Act, ...]


def script(draws: Draws, updates: int, machines: Sequence[Machine]) -> Script:
    """For a run of so many updates on any of these machines."""
    first = _machine(draws, machines, alone=False)
    places: list[int] = []
    for _ in range(LEAST_ACTS + draws.below(MORE_ACTS)):
        again = places and draws.below(4) == 0  # where something has just been done
        places.append(places[-1] if again else 0 if draws.below(8) == 0 else draws.below(updates))
    acts = [
        Act(
            at=at,
            wait=draws.share(),
            what=draws.pick(WHAT),
            who=draws.share(),
            seconds=LONGEST_STOP * draws.share() ** 2,
            number=draws.pick(ENDS),
            group=draws.below(2) == 0,
            on=_machine(draws, machines),
        )
        for at in sorted(places)
    ]
    return Script(first, tuple(acts))


def _machine(draws: Draws, machines: Sequence[Machine], *, alone: bool = True) -> Machine:
    """One of them, or one process alone; with delays or without, with checkpoints often or not."""
    alone = draws.below(10) == 0 and alone  # drawn in any case
    return dataclasses.replace(
        Machine(serial=True) if alone else draws.pick(machines),
        jitter=draws.pick((0.0, 0.0, 0.0, 1.0, 4.0)),
        checkpoint_every=draws.pick((0.05, 0.4, 2.0, 0.0)),
    )


def machines(
    experiment: Experiment, stepping: Sequence[Any], actors: Sequence[int]
) -> list[Machine]:
    """Every layout that can run this experiment on a few processes."""
    kinds = itertools.product((1, 2, 3), actors, (1, 2), stepping, (False, True))
    made = [
        Machine(executors=e, actors=a, learners=learners, stepping=steps, barrier=barrier)
        for e, a, learners, steps, barrier in kinds
    ]
    return [each for each in made if not check(Config(experiment=experiment, machine=each))]


def flags(machine: Machine) -> list[str]:
    """What hts-train is told: everything, since a run that goes on keeps what is not said."""
    values = {
        name: getattr(machine, name)
        for name in ("executors", "actors", "learners", "stepping", "barrier", "serial", "jitter")
    }
    values |= {"checkpoint_every": machine.checkpoint_every, "replacements": 1000, "patience": 15}
    return [word for name, value in values.items() for word in ("--set", f"machine.{name}={value}")]


def told(machine: Machine) -> str:
    """In a word: 2e1a1l are executors, actors and learner threads."""
    if machine.serial:
        return "serial"
    crew = f"{machine.executors}e{machine.actors}a{machine.learners}l {machine.stepping}"
    extras = [" barrier" if machine.barrier else "", f" jitter {machine.jitter:g}"]
    return crew + extras[0] + (extras[1] if machine.jitter else "")
