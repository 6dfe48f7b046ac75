"""The machine for a run, chosen from measured costs: never part of a result, only of its time.

Everything that is `auto` is filled in, everything that was asked for is kept:

    batched world       one executor steps all replicas in one call
    steps that wait     a few executors, every replica in a thread of its own
    a replay            two learners keep a core each busy: executors for the cores that are left
    network on a GPU    one actor answers all executors in large batches
    all others          executors that answer themselves; how many, the costs say. A rollout takes
                        an executor's work or a learner thread's, whichever is longer, and longer
                        where they have less than a core each; and the sum of both where they take
                        turns.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from hts.bench.costs import Budget, Costs, with_networks
from hts.bench.walks import StepCosts
from hts.config import Experiment, Machine
from hts.runtime.assemble import Plan
from hts.runtime.crew import blocks_for
from hts_envs.registry import Spec

LOOK = Budget(steps=0.4, inference=0.2, learning=0.3)
"""Seconds that a run may spend on looking before it begins; first calls come on top."""

_WAITING = 0.5  # a step that waits for more than this share of its time gets a thread
_BUSY = 0.15  # of a core, with warm caches: what one executor may compute for replicas that wait
_SHARING = 2  # executors whose replicas wait may share a core
_PUSHED = 0.15  # of the time is lost where twice as many as there are cores share them
_WORTH = 0.97  # one more executor has to shorten a rollout to this
_Q_LEARNERS = 2
_UNMEASURED = ("counting",)  # takes one right action only


@dataclass(frozen=True)
class Layout:
    """A machine in which everybody is counted, and the sentence that explains it; what was asked
    for, where executors and learner threads may be counted again while the run goes on."""

    machine: Machine
    why: str
    asked: Machine | None = None


Counts: TypeAlias = tuple[int, int]
"""So many executors, and threads of the learner."""


Measure: TypeAlias = Callable[[float], StepCosts]
"""Measures steps of the environment for about so many seconds."""


@dataclass(frozen=True)
class Work:
    """CPU seconds of a sample: of acting, by so many executors, and of learning."""

    acting: Callable[[int], float]
    learning: float


@dataclass(frozen=True)
class There:
    """What a layout is chosen for, besides the experiment."""

    cores: int
    batched: bool = False
    device: str = "cpu"


def auto(found: Plan, spec: Spec, machine: Machine, measure: Measure | None = None) -> Layout:
    """Look at what has to be known for a choice, and choose."""
    if machine.serial or "auto" not in (machine.executors, machine.stepping):
        return Layout(machine, "as asked for")
    if not machine.dialled_in(found.experiment.replicas).start:
        why = f"simulators dial in at {machine.listen}"
        return _filled(machine, found.experiment, 1, why=why)
    there = There(len(os.sched_getaffinity(0)), spec.batched, found.device)
    if spec.batched or found.device != "cpu" or spec.family.name in _UNMEASURED or not measure:
        return choose(machine, found.experiment, there)
    try:
        costs = _costs(found, measure)
    except Exception as error:  # it will raise where it is run, and be told from there
        chosen = choose(machine, found.experiment, there)
        why = next(iter(str(error).splitlines()), type(error).__name__)
        return Layout(chosen.machine, f"{chosen.why} (its steps could not be measured: {why})")
    return choose(machine, found.experiment, there, costs)


def _costs(found: Plan, measure: Measure) -> Costs:
    """What a choice depends on: with a replay, whether steps wait, since each of its two learners
    has a core, whatever it costs."""
    step = measure(LOOK.steps)
    if found.experiment.windows:
        return Costs(step, {1: 0.0}, 0.0)
    return with_networks(found, step, LOOK)


def choose(
    asked: Machine, experiment: Experiment, there: There, costs: Costs | None = None
) -> Layout:
    """The layout for these costs; without any, the one for steps that compute."""
    many = min(there.cores, experiment.replicas)
    if there.batched:
        return _filled(asked, experiment, 1, why="the world steps all replicas in one call")
    if there.device != "cpu":
        why = f"one actor on {there.device} answers {many} executors"
        return _filled(asked, experiment, many, actors=1, why=why)
    waits = costs is not None and costs.step.waiting > _WAITING and asked.stepping != "turns"
    if experiment.windows and not waits:
        few = max(1, min(many, there.cores - _Q_LEARNERS))
        why = "two learners keep a core each busy"
        return _filled(asked, experiment, few, why=why)
    if costs is None:
        return _filled(asked, experiment, many, why="an executor for each core")
    step = costs.step
    if waits:
        few, load = _for_waiting(experiment, there, costs)
        why = (
            f"a step takes {_ms(step.mean)} and waits {step.waiting:.0%} of it, so every replica "
            f"has a thread; together they compute on {load:.2g} cores"
        )
        return _filled(asked, experiment, few, threads=True, why=why)
    work = Work(lambda executors: costs.acting(experiment.replicas / executors), costs.learning)
    executors, learners = _for_computing(asked, experiment, there, work)
    answer = costs.answer(experiment.replicas / executors)
    why = (
        f"per sample: step {_ms(step.cpu)}, inference {_ms(answer)}, learning {_ms(costs.learning)}"
    )
    found = _filled(asked, experiment, executors, learners=learners, why=why)
    again = (
        step.repeats and asked.listen is None and len(choices(asked, experiment, there.cores)) > 1
    )
    return dataclasses.replace(found, asked=asked if again else None)


def _for_waiting(experiment: Experiment, there: There, costs: Costs) -> tuple[int, float]:
    """How many executors, and how many cores they use; answers come one by one then."""
    rate = experiment.replicas / costs.step.mean
    load = rate * costs.acting(1)
    most = min(_SHARING * there.cores, experiment.replicas)
    return max(1, min(most, math.ceil(load / _BUSY))), load


def _for_computing(asked: Machine, experiment: Experiment, there: There, work: Work) -> Counts:
    """The smallest numbers of executors and learner threads that are about as fast as the best."""
    possible = choices(asked, experiment, there.cores)
    best, least = possible[0], pace(experiment, there.cores, work, possible[0])
    for counts in possible[1:]:
        found = pace(experiment, there.cores, work, counts)
        if found < _WORTH * least:
            best, least = counts, found
    return best


def choices(asked: Machine, experiment: Experiment, cores: int) -> list[Counts]:
    """Those that may be chosen, small ones first."""
    most = min(cores, experiment.replicas)
    executors = range(1, most + 1) if asked.executors == "auto" else (asked.executors,)
    threads = [count for count in (1, 2, 4) if count <= min(cores, experiment.shard_count)]
    learners = threads if asked.learners == "auto" else [asked.learners]
    return sorted(itertools.product(executors, learners), key=sum)


def pace(experiment: Experiment, cores: int, work: Work, counts: Counts) -> float:
    """Seconds of a rollout for each of its rows.

    Side by side each has a core, or an equal share of one, until one kind is done; those who share
    push each other out of the caches.
    """
    executors, learners = (min(count, cores) for count in counts)
    acting, learning = work.acting(executors) / executors, work.learning / learners
    if experiment.schedule == "sync":
        return acting + learning
    crowd = max(1.0, (executors + learners) / cores)
    first, last = sorted((acting, learning))
    return (first * crowd + last - first) * (1.0 + _PUSHED * (crowd - 1.0) ** 2)


def recounted(layout: Layout, experiment: Experiment, counts: Counts) -> Machine:
    """The same machine with other numbers."""
    assert layout.asked is not None, "somebody may be counted again"
    executors, learners = counts
    return _filled(layout.asked, experiment, executors, learners=learners, why="").machine


def _filled(
    asked: Machine,
    experiment: Experiment,
    executors: int,
    *,
    actors: int = 0,
    learners: int = 1,
    threads: bool = False,
    why: str,
) -> Layout:
    """What was asked for, and these values where nothing was."""
    if asked.executors != "auto":
        executors = asked.executors
    if asked.actors != "auto":
        actors = asked.actors
    if asked.learners != "auto":
        learners = asked.learners
    stepping = asked.stepping
    if stepping == "auto":
        stepping = "threads" if threads else "turns"
    machine = dataclasses.replace(
        asked, executors=executors, actors=actors, learners=learners, stepping=stepping
    )
    share = -(-experiment.replicas // executors)
    machine = dataclasses.replace(machine, blocks=blocks_for(machine, share, executors, actors))
    return Layout(machine, f"{_told(machine)}: {why}")


def _told(machine: Machine) -> str:
    """Who is there, in words."""
    counted = (
        (machine.executors, "executor"),
        (machine.actors, "actor"),
        (machine.learners, "learner thread"),
    )
    words = [f"{count or 'no'} {word}{'s' if count != 1 else ''}" for count, word in counted]
    return ", ".join(words)


def _ms(seconds: float) -> str:
    milliseconds = 1e3 * seconds
    return f"{milliseconds:.{2 if milliseconds < 1 else 3}g} ms"
