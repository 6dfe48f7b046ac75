"""One sitting of the bench: costs, limits, then the machine itself, in the same minute."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hts.bench.costs import Budget
from hts.bench.limits import Limits, limits
from hts.bench.measuring import Found, Question, measured, together
from hts.bench.throughput import Reading, endless, run_machine
from hts.config import Config, Machine
from hts.errors import RoleFailed
from hts.runtime.assemble import plan
from hts.runtime.devices import device_of
from hts.runtime.layout import There, choose
from hts.runtime.preview import look_once
from hts_envs.registry import parse

PARTS_SECONDS = 5.0


@dataclass(frozen=True)
class Asked:
    """The configurations to be run, for how long each, and whether to take a sample apart."""

    configs: Sequence[Config]
    seconds: float
    parts: bool


@dataclass(frozen=True)
class Outcome:
    """What one configuration cost, could do, and did."""

    config: Config
    found: Found
    limits: Limits
    machine: Machine  # with everything that was `auto` filled in
    why: str
    reading: Reading | None  # None where it failed
    failure: str = ""

    @property
    def ratio(self) -> float | None:
        """How much of the limit was reached."""
        if self.reading is None:
            return None
        return self.reading.steps_per_second / self.limits.best


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0))


def outcomes(asked: Asked) -> Iterator[Outcome]:
    """One after the other; costs are measured again when the experiment is another one."""
    before, found, crowded = None, None, None
    for config in asked.configs:
        experiment = endless(config.experiment)
        if found is None or experiment != before:
            question = Question(
                experiment,
                device_of(config.machine),
                _budget(asked.seconds, config),
                PARTS_SECONDS if asked.parts else 0.0,
            )
            before, found, crowded = experiment, measured(question), _crowded(question)
        config = dataclasses.replace(config, experiment=experiment)
        yield _outcome(config, found, crowded, asked.seconds)


def _crowded(question: Question) -> float | None:
    """The limit by the CPU where all cores compute at once, and share what cores share: caches,
    memory, or, where two of them are threads of one, everything."""
    if cores() == 1 or question.device != "cpu":
        return None
    found = together(dataclasses.replace(question, parts=0.0), cores())
    return sum(1.0 / each.costs.sample(question.experiment.replicas) for each in found)


def _outcome(config: Config, found: Found, crowded: float | None, seconds: float) -> Outcome:
    experiment, device = config.experiment, device_of(config.machine)
    spec = parse(experiment.env)
    there = There(cores(), spec.batched, device)
    layout = choose(config.machine, experiment, there, found.costs)
    reading, failure = None, ""
    try:
        look = look_once(experiment.env, experiment.seed)
        planned = plan(experiment, spec, device, config.machine.jitter, look)
        reading = run_machine(planned, layout.machine, seconds)
    except RoleFailed as error:
        failure = str(error)
    bounds = limits(found.costs, config, spec, there.cores, reading)
    known = dataclasses.replace(bounds, crowded=crowded)
    return Outcome(config, found, known, layout.machine, layout.why, reading, failure)


def _budget(seconds: float, config: Config) -> Budget:
    """A quarter of what the machine gets, for costs; as many worlds as an executor steps."""
    executors = cores() if config.machine.executors == "auto" else config.machine.executors
    return Budget(
        steps=0.1 * seconds,
        inference=0.05 * seconds,
        learning=0.1 * seconds,
        worlds=-(-config.experiment.replicas // executors),
    )
