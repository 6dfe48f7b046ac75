"""What the machine could do at best, from what a sample costs and who has to wait for whom."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from hts.bench.costs import Costs
from hts.bench.model import (
    Dataflow,
    GammaTimes,
    KnownTimes,
    MeasuredTimes,
    Schedule,
    StepTimes,
    cpu_limit,
    simulate,
)
from hts.bench.throughput import Reading
from hts.config import Config, Experiment
from hts.determinism.keys import episode_seed
from hts_envs.contract import Array
from hts_envs.registry import Spec
from hts_envs.sleeper import durations, episode_lengths

_WAITING = 0.5  # of a step: from here on it matters who waits for whom


@dataclass(frozen=True)
class Limits:
    """Steps per second at best; None where a limit means nothing for this simulator."""

    cpu: float
    waiting: float | None  # replicas wait for each other; answers and updates take no time
    expected: float | None  # the same with answers and updates as long as they were measured
    crowded: float | None = None  # by the CPU, at the costs of a sample where every core computes

    @property
    def best(self) -> float:
        return self.cpu if self.waiting is None else min(self.cpu, self.waiting)


def limits(
    costs: Costs, config: Config, spec: Spec, cores: int, reading: Reading | None = None
) -> Limits:
    """The limits of an experiment on so many cores; of a reading, where its steps are known."""
    experiment = config.experiment
    cpu = cpu_limit(cores, costs.sample(experiment.replicas))
    if spec.batched or costs.step.waiting < _WAITING:
        return Limits(cpu, None, None)
    times, schedule, span = step_times(costs, spec), schedule_of(config), []
    if reading is not None and spec.family.name == "sleeper":
        span = [reading.updates, reading.since]
        times = KnownTimes(slept(experiment, spec, sum(span) * experiment.rollout))
    free = Dataflow(replicas=experiment.replicas, alpha=experiment.rollout, schedule=schedule)
    real = Dataflow(
        replicas=experiment.replicas,
        alpha=experiment.rollout,
        schedule=schedule,
        learning=costs.learning * experiment.rows,
        latency=costs.acting(1),
    )
    ideal, expected = simulate(times, free, *span), simulate(times, real, *span)
    return Limits(cpu, ideal.steps_per_second, expected.steps_per_second)


def schedule_of(config: Config) -> Schedule:
    """As --schedule has it: with the barrier, or without."""
    if config.experiment.schedule == "sync":
        return "sync"
    return "hts_barrier" if config.machine.barrier else "hts"


def step_times(costs: Costs, spec: Spec) -> StepTimes:
    """How long steps take: known of a sleeper, measured of every other."""
    if spec.family.name == "sleeper":
        return GammaTimes(spec.options.mean / 1e3, spec.options.shape)
    return MeasuredTimes(costs.step.durations)


def slept(experiment: Experiment, spec: Spec, steps: int) -> Array:
    """How long a sleeper's first steps are in a run of this experiment: (replicas, steps)."""
    return np.stack([_slept(experiment, spec, each, steps) for each in range(experiment.replicas)])


def _slept(experiment: Experiment, spec: Spec, replica: int, steps: int) -> Array:
    found: list[Array] = []
    for episode in itertools.count():
        seed = episode_seed(experiment.seed, replica, episode)
        (length,) = episode_lengths(spec.options, np.array([seed], np.uint64))
        found.append(durations(spec.options, seed, np.arange(min(length, steps))))
        steps -= len(found[-1])
        if not steps:
            return np.concatenate(found)
    raise AssertionError("there is always one more episode")
